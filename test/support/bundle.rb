# frozen_string_literal: true

# Finds Bundler's command, which Debian names after its Ruby.
module Bundle
  NAMES = ["bundle", "bundle#{RbConfig::CONFIG["ruby_version"][/\d+\.\d+/]}"].freeze

  # @return [String]
  def self.command
    folders = ENV.fetch("PATH").split(":")
    NAMES.find { |name| folders.any? { |folder| File.executable?("#{folder}/#{name}") } } ||
      raise("there is no #{NAMES.join(" or ")} on PATH; it comes with Ruby")
  end
end
