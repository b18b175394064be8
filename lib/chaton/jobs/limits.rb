# frozen_string_literal: true

module Chaton
  module Jobs
    # How a class says how many of its jobs may run: `concurrency: 5`, `rate: 10, per: 60` (in any 60 seconds) or
    # `bucket: 10, per: 60` (refilled evenly); `key:` for whom, a String or a block that gets the arguments.
    module Limits
      # What a limit may say.
      WORDS = %i[key concurrency rate per bucket hold].freeze

      # @param given [Hash, Array<Hash>] one, or several that all have to allow it
      # @return [Array<Hash{Symbol=>Object}>]
      # @raise [ArgumentError]
      def self.read(given, owner)
        (given.is_a?(Array) ? given : [given]).map do |limit|
          words = limit.is_a?(Hash) ? limit.transform_keys(&:to_sym) : {}
          next words if (words.keys - WORDS).empty? && max(words) && timed?(words)

          raise ArgumentError, "#{owner}: limit is #{limit.inspect}; write concurrency: 5, or rate: 10, per: 60, or " \
                               "bucket: 10, per: 60, each with key: where it is not for the whole class"
        end
      end

      # @param words [Hash{Symbol=>Object}]
      # @param item [Hash{String=>Object}] the job
      # @return [Hash{String=>Object}] as the document has it
      def self.document(words, item)
        timed = !words[:concurrency]
        { "key" => key(words[:key], item), "max" => max(words), "per" => (words[:per].to_f if timed),
          "bucket" => (true if words[:bucket] && timed), "hold" => words[:hold]&.to_f }.compact
      end

      def self.max(words)
        max = words[:concurrency] || words[:rate] || words[:bucket]
        max if max.is_a?(Integer) && max.positive?
      end

      def self.timed?(words) = words[:concurrency] || (words[:per].respond_to?(:to_f) && words[:per].to_f.positive?)

      def self.key(key, item)
        key = key.call(*item["args"]) if key.respond_to?(:call)
        (key || item["wrapped"] || item["class"]).to_s
      end
      private_class_method :max, :timed?, :key
    end
  end
end
