# frozen_string_literal: true

require "did_you_mean"

module Chaton
  module Config
    # Finds the known name that a misspelt one was probably meant to be.
    module Nearest
      # @return [String, nil]
      def self.to(name, known)
        DidYouMean::SpellChecker.new(dictionary: known.map(&:to_s)).correct(name.to_s).first
      end
    end
  end
end
