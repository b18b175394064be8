# frozen_string_literal: true

require_relative "../options"
require_relative "section"

module Chaton
  module Config
    # Inside `jobs { }`.
    class JobsSection < Section
      define Options.in(:jobs)

      # What a misspelt name may have been meant to be.
      KNOWN = Options.in(:jobs).flat_map { |option| [option.name, *option.also] }.freeze

      def to_s = "jobs"
    end
  end
end
