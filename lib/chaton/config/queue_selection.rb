# frozen_string_literal: true

require_relative "types"

module Chaton
  module Config
    # The queues of a worker and the order in which they are asked.
    #
    # mode is "strict" (the first one that holds a job), "weighted" or "random"; queues are pairs of name and
    # weight, the weight 1 where none counts.
    QueueSelection = Struct.new(:mode, :queues) do
      # @return [String] "critical 3, default 1 (weighted)"
      def to_s
        shown = queues.map { |name, weight| mode == "weighted" ? "#{name} #{weight}" : name }
        "#{shown.join(", ")} (#{mode})"
      end
    end
    # Used if no queue is set.
    QueueSelection::DEFAULT = QueueSelection.new("strict", [["default", 1].freeze].freeze).freeze

    module Types
      # `queues "critical", "default"` (strict), `queues critical: 3, default: 1` (weighted),
      # `queues random: %w[a b]`; a file of Sidekiq writes pairs: `["critical", 3]`.
      class QueueList < Base
        # QueueSelection of one worker.
        LIMIT = 1000
        # The highest weight.
        WEIGHT_MAX = 1000
        # Allowed names of queues.
        NAME = /\A[^\s:,"\\][^\s,"\\]{0,254}\z/

        def initialize
          super("names in strict order (queues \"critical\", \"default\"), weights from 1 to #{thousand(WEIGHT_MAX)} " \
                "(queues critical: 3, default: 1) or random: %w[a b]")
        end

        def arguments = 1..LIMIT

        def cast(*values)
          values = values.first if values.size == 1 && values.first.is_a?(Array) && !pair?(values.first)
          return by_keyword(values.first) if values.size == 1 && values.first.is_a?(Hash)

          mismatch(values) if values.empty? || values.size > LIMIT
          pairs = values.map { |value| pair?(value) ? [name(value[0]), weight(value[1])] : [name(value), nil] }
          # As in Sidekiq, a single weight makes all queues weighted.
          build(pairs.any?(&:last) ? "weighted" : "strict", pairs)
        end

        private

        def thousand(number) = Types.thousands(number)

        def pair?(value) = value.is_a?(Array) && value.size == 2 && value.last.to_s.match?(/\A\d+\z/)

        # A queue with the name "random" has a weight, not an Array.
        def by_keyword(hash)
          return build("random", hash[:random].map { |one| [name(one), nil] }) if random?(hash)

          mismatch(hash) if hash.empty? || hash.size > LIMIT
          build("weighted", hash.map { |queue, weight| [name(queue), weight(weight)] })
        end

        def random?(hash) = hash.keys == [:random] && hash[:random].is_a?(Array) && !hash[:random].empty?

        def name(value)
          text = value.to_s
          return text.dup.freeze if (value.is_a?(String) || value.is_a?(Symbol)) && text.match?(NAME)

          raise Mismatch, "must be #{rule}; #{value.inspect} is not a name of a queue"
        end

        def weight(value)
          number = Integer(value.to_s, 10, exception: false)
          # In Sidekiq's files 0 means "no weight".
          return number.zero? ? 1 : number if number&.between?(0, WEIGHT_MAX)

          raise Mismatch, "must be #{rule}; #{value.inspect} is not a weight"
        end

        def build(mode, pairs)
          twice = pairs.map(&:first).tally.find { |_, count| count > 1 }
          raise Mismatch, "name #{twice.first.inspect} twice; give it a weight instead: #{twice.first}: 2" if twice

          QueueSelection.new(mode, pairs.map { |queue, weight| [queue, weight || 1].freeze }.freeze).freeze
        end
      end
    end
  end
end
