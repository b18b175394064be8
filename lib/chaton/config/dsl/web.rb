# frozen_string_literal: true

require_relative "section"

module Chaton
  module Config
    # The block of `web { }`.
    class WebSection < Section.for(:web, :queue)
      # Keyword of `queue` => its option.
      KEYWORDS = Options.in(:queue).to_h { |option| [option.key, option] }.freeze

      # The queue of requests that wait for a thread.
      #
      # @param keywords [Hash{Symbol=>Object}] limit:, bytes:, age: (seconds), retry_after: (seconds)
      def queue(*values, **keywords)
        unless values.empty?
          problem("queue takes #{KEYWORDS.keys.map { |key| "#{key}:" }.join(", ")}, not #{values.first.inspect}")
        end
        keywords.each do |key, value|
          if (option = KEYWORDS[key])
            @sources.assign(:file, option, [value], here, label: "queue #{key}:")
          elsif (fixed = Options.fixed(key, :queue))
            problem(fixed.refusal("queue #{key}:"))
          else
            problem("queue has no #{key}:", Nearest.to(key, KEYWORDS.keys)&.then { |name| "#{name}:" })
          end
        end
      end
    end
  end
end
