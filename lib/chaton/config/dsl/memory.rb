# frozen_string_literal: true

require_relative "../options"
require_relative "section"

module Chaton
  module Config
    # Inside `memory { }`.
    class MemorySection < Section
      define Options.in(:memory)

      # What a misspelt name may have been meant to be.
      KNOWN = Options.in(:memory).flat_map { |option| [option.name, *option.also] }.freeze

      def to_s = "memory"
    end
  end
end
