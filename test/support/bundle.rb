# frozen_string_literal: true

# Finds Bundler's command, whose name on Debian contains Ruby's version.
module Bundle
  NAMES = ["bundle", "bundle#{RbConfig::CONFIG["ruby_version"][/\d+\.\d+/]}"].freeze

  # @return [String]
  def self.command
    folders = ENV.fetch("PATH").split(":")
    NAMES.find { |name| folders.any? { |folder| File.executable?("#{folder}/#{name}") } } ||
      raise("there is no #{NAMES.join(" or ")} on PATH; it comes with Ruby")
  end
end
