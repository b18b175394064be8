# frozen_string_literal: true

require_relative "sources"
require_relative "topic_line"

module Chaton
  module Config
    # The rules that concern several keywords of a topic, or several topics, at once.
    class StreamsCheck
      # What all topics of one group must say alike.
      OF_GROUP = %i[start protocol].freeze
      # What all lines of one topic must say alike.
      OF_TOPIC = %i[partitions replication settings].freeze

      # @param sources [Sources] its problems and notes get more
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

        note(line, "has retries: and no dead_letter: what fails is tried again for ever, every backoff_max seconds")
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

      # What a transaction commits is one offset of the partition, and all before it.
      def check_transaction(line)
        return unless line[:transactional] && line[:concurrency] > 1

        problem(line, "cannot be transactional with concurrency: #{line[:concurrency]}; a transaction commits all of " \
                      "its partition up to one record. Take concurrency: away and give the topic more partitions")
      end

      def check_twice(read)
        read.group_by { |line| [line[:group], line.name] }.each_value do |lines|
          next if lines.size < 2

          first, second = lines
          problem(second, "has two consumers in #{group(second)} (the other one stands at #{first.origin}), and each " \
                          "record goes to one; give one of them another group:")
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
