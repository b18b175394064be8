# frozen_string_literal: true

require_relative "options"

module Chaton
  module Config
    # Settings of memory. Each field is an option of `memory { }`, see docs/CONFIGURATION.md; a size is an Integer of
    # bytes, and `eden` a Float if it is a multiple.
    MemorySettings = Struct.new(*Options.names(:memory), keyword_init: true) do
      # @return [Float, nil] growth of old objects that starts a full collection; nil: Ruby's own limits
      def longlife_growth
        case collect == :between && longlife
        when :settle then 1.0
        when Float then longlife
        end
      end
    end
  end
end
