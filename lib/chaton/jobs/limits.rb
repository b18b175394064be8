# frozen_string_literal: true

module Chaton
  module Jobs
    # The option `limit:` of a job class: `concurrency: 5`, `rate: 10, per: 60` (in any 60 seconds) or
    # `bucket: 10, per: 60` (refilled evenly). `key:` names the limit: a String, or a block that gets the arguments.
    module Limits
      # Keys of a limit.
      KEYS = %i[key concurrency rate per bucket hold].freeze

      # @param given [Hash, Array<Hash>] one limit, or several that all apply
      # @raise [ArgumentError]
      def self.read(given, owner)
        (given.is_a?(Array) ? given : [given]).map do |one|
          limit = one.is_a?(Hash) ? one.transform_keys(&:to_sym) : {}
          next limit if (limit.keys - KEYS).empty? && max(limit) && timed?(limit)

          raise ArgumentError, "#{owner}: limit is #{one.inspect}; write concurrency: 5, or rate: 10, per: 60, or " \
                               "bucket: 10, per: 60, each with key: if it is not for the whole class"
        end
      end

      # @param item [Hash{String=>Object}] the job
      # @return [Hash{String=>Object}] as the document has it
      def self.document(limit, item)
        timed = !limit[:concurrency]
        { "key" => key(limit[:key], item), "max" => max(limit), "per" => (limit[:per].to_f if timed),
          "bucket" => (true if limit[:bucket] && timed), "hold" => limit[:hold]&.to_f }.compact
      end

      def self.max(limit)
        max = limit[:concurrency] || limit[:rate] || limit[:bucket]
        max if max.is_a?(Integer) && max.positive?
      end

      def self.timed?(limit) = limit[:concurrency] || (limit[:per].respond_to?(:to_f) && limit[:per].to_f.positive?)

      def self.key(key, item)
        key = key.call(*item["args"]) if key.respond_to?(:call)
        (key || item["wrapped"] || item["class"]).to_s
      end
      private_class_method :max, :timed?, :key
    end
  end
end
