# frozen_string_literal: true

module Chaton
  class CLI
    module Streams
      # The changes that make the topics of the log as they are declared, in order.
      class TopicChanges
        # One change. `act` is :create, :grow, :configure or :impossible; `change` has the arguments of the call; `says`
        # is the sentence for people.
        Change = Struct.new(:act, :topic, :change, :says, keyword_init: true) do
          def possible? = act != :impossible
        end

        # @param found [Array<Hash{String=>Object}>] as {Admin#topics} gives them
        # @param copies [Boolean] whether the log keeps several copies of a partition
        def initialize(declared, found, copies:)
          @declared = declared
          @found = found.to_h { |topic| [topic["name"], topic] }
          @copies = copies
        end

        def changes
          @declared.flat_map do |topic|
            there = @found[topic.name]
            there ? [*partitions(topic, there), *replication(topic, there), *settings(topic, there)] : [create(topic)]
          end
        end

        private

        def create(topic)
          partitions = topic.partitions
          copies = topic.replication if @copies
          facts = [("#{partitions} partitions" if partitions), ("replication #{copies}" if copies),
                   *topic.settings.map { |name, value| "#{name}=#{value}" }].compact
          Change.new(act: :create, topic: topic.name,
                     change: { partitions: partitions, replication: copies, settings: text(topic.settings) },
                     says: "create #{topic.name}#{": #{facts.join(", ")}" unless facts.empty?}")
        end

        def partitions(topic, there)
          has, wanted = there["partitions"].size, topic.partitions
          return [] if wanted.nil? || wanted == has
          return [Change.new(act: :grow, topic: topic.name, change: wanted, says: growth(topic, has))] if wanted > has

          [impossible(topic, "#{wanted} partitions are declared but it has #{has}, which cannot be removed; " \
                             "declare #{has}, or copy it (`chaton streams copy`)")]
        end

        def growth(topic, has)
          "grow #{topic.name}: #{has} → #{topic.partitions} partitions (keys move; new records of a key may be in " \
            "another partition than older ones)"
        end

        def replication(topic, there)
          wanted, has = topic.replication, there["replication"]
          return [] if !@copies || wanted.nil? || wanted == has

          [impossible(topic, "replication #{wanted} is declared but it has #{has}; change it with Kafka's own " \
                             "kafka-reassign-partitions")]
        end

        def settings(topic, there)
          changed = text(topic.settings).reject { |name, value| there["settings"][name] == value }
          return [] if changed.empty?

          says = changed.map { |name, value| "#{name} #{there["settings"].fetch(name, "as the log's")} → #{value}" }
          [Change.new(act: :configure, topic: topic.name, change: changed,
                      says: "configure #{topic.name}: #{says.join(", ")}")]
        end

        def impossible(topic, says)
          Change.new(act: :impossible, topic: topic.name, change: nil, says: "cannot change #{topic.name}: #{says}")
        end

        # Settings as a log stores them.
        def text(settings) = settings.to_h { |name, value| [name.to_s, value.to_s] }
      end
    end
  end
end
