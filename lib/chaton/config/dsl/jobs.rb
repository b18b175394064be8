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

      # Earlier names of options. They are accepted, with a note.
      RENAMED = { settle_s: :ack_delay_s, settle: :ack_delay }.freeze

      RENAMED.each do |old, name|
        define_method(old) do |*values|
          @draft.note(here, "#{old} is now #{name}; the old name is still accepted")
          public_send(name, *values)
        end
      end

      # @return [String]
      def to_s = "jobs"
    end
  end
end
