# frozen_string_literal: true

module Bench
  # Keeps the README's tables as the newest full run of each suite has them.
  module Readme
    PATH = File.expand_path("../../README.md", __dir__)

    module_function

    # @param suite [Module] as Bench::Run takes it
    # @param folder [String] bench/runs/DATE-SUITE
    # @return [Boolean] whether the README changed
    def render(suite, folder)
      text = File.read(PATH)
      section = /(<!-- bench:#{suite.name} -->\n).*?(<!-- end bench:#{suite.name} -->)/m
      table = "#{suite.summary(folder).table}\n\nFrom [#{relative(folder)}](#{relative(folder)}/summary.md).\n"
      fresh = text.sub(section) { "#{Regexp.last_match(1)}#{table}#{Regexp.last_match(2)}" }
      return false if fresh == text
      File.write(PATH, fresh)
      true
    end

    def relative(folder) = folder[%r{bench/runs/.+}]
  end
end
