# frozen_string_literal: true

require_relative "sources"
require_relative "topic_line"

module Chaton
  module Config
    # Checks the rules between keywords of a topic, and between topics.
    class StreamsCheck
      # Keywords that must be the same for all topics of a group.
      OF_GROUP = %i[start protocol].freeze
      # Keywords that must be the same in all lines of a topic.
      OF_TOPIC = %i[partitions replication settings].freeze

      # @param sources [Sources] gets the problems and notes
      def initialize(sources)
        @sources = sources
        @topics = sources.topics
      end

      def run
        read = @topics.select(&:consumer)
        read.each { |line| check(line) }
        check_twice(read)
        check_alike(read, OF_GROUP, "group") { |line| line[:group] }
        check_alike(@topics, OF_TOPIC, "topic", &:name)
      end

      private

      def check(line)
        problem(line, "has itself as its dead_letter; name another topic") if line[:dead_letter] == line.name
        check_order(line)
        check_transaction(line)
        if line[:backoff] > line[:backoff_max] && (line.given.keys & %i[backoff backoff_max]).any?
          problem(line, "has a backoff of #{line[:backoff]} above its backoff_max of #{line[:backoff_max]}")
        end
        return if line[:dead_letter] || !line.given[:retries]

        note(line,
             "has retries: but no dead_letter:, so a failed batch is tried again for ever, every backoff_max seconds")
      end

      def check_order(line)
        concurrent = line[:concurrency] > 1
        if line.order == :key && !concurrent
          problem(line, "has order: :key, which needs concurrency: 2 or more; in a partition that is read one batch " \
                        "at a time everything keeps its order")
        elsif line.order == :partition && concurrent
          note(line, "has concurrency: #{line[:concurrency]} and order: :partition, under which one batch runs at a " \
                     "time; write order: :key")
        end
      end

      # A transaction commits all records of a partition up to one offset.
      def check_transaction(line)
        return unless line[:transactional] && line[:concurrency] > 1

        problem(line, "cannot be transactional with concurrency: #{line[:concurrency]}; a transaction commits all of " \
                      "its partition up to one record. Take concurrency: away and give the topic more partitions")
      end

      def check_twice(read)
        read.group_by { |line| [line[:group], line.name] }.each_value do |lines|
          next if lines.size < 2

          first, second = lines
          problem(second, "has two consumers in #{group(second)} (the other one is at #{first.origin}), but each " \
                          "record goes to one of them; give one another group:")
        end
      end

      def check_alike(lines, keys, what)
        lines.group_by { |line| yield line }.each_value do |alike|
          keys.each do |key|
            saying = alike.select { |line| line.given.key?(key) }
            other = saying.find { |line| line[key] != saying.first[key] }
            next unless other

            where = what == "group" ? "its #{group(other)}" : "the same topic"
            problem(other, "has #{key}: #{other[key].inspect}, and #{where} has #{saying.first[key].inspect} at " \
                           "#{saying.first.origin}; a #{what} has one")
          end
        end
      end

      def group(line) = line[:group] ? "group #{line[:group].inspect}" : "the default group"

      def problem(line, message) = @sources.problem(line.origin, "#{line} #{message}")

      def note(line, message) = @sources.note(line.origin, "#{line} #{message}")
    end
  end
end
