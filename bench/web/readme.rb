# frozen_string_literal: true

require_relative "summary"

module Bench
  module Web
    # Keeps the README's table as the newest full run has it.
    module Readme
      PATH = File.expand_path("../../README.md", __dir__)
      SECTION = /(<!-- bench:web -->\n).*?(<!-- end bench:web -->)/m

      module_function

      # @param folder [String] bench/runs/DATE-web
      # @return [Boolean] whether the README changed
      def render(folder)
        text = File.read(PATH)
        table = "#{Summary.new(folder).table}\n\nFrom [#{relative(folder)}](#{relative(folder)}/summary.md).\n"
        fresh = text.sub(SECTION) { "#{Regexp.last_match(1)}#{table}#{Regexp.last_match(2)}" }
        return false if fresh == text
        File.write(PATH, fresh)
        true
      end

      def relative(folder) = folder[%r{bench/runs/.+}]
    end
  end
end
