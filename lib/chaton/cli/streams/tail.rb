# frozen_string_literal: true

require_relative "command"
require_relative "cursor"
require_relative "record_format"

module Chaton
  class CLI
    module Streams
      # chaton streams tail TOPIC: prints records ordered by time, of all partitions or one.
      class Tail < Command
        # Records that are printed by default.
        NEWEST = 10
        # Records that are read and not printed yet, at most.
        WAITING_MAX = 1_000

        def self.own_options = %i[partition place count]

        def self.switches = [*super, "--follow"]

        def run
          name, = positional("TOPIC")
          @left = value(:count) || Float::INFINITY
          cursors = cursors(admin.topic!(name), value(:place) || -newest)
          print_all(cursors)
          follow(cursors) if follow? && @left.positive?
          0
        rescue Interrupt
          0
        end

        private

        def follow? = @arguments.switch?("--follow")

        def newest = follow? ? [NEWEST, @left].min : value(:count) || NEWEST

        # -N are the N newest records of the whole topic.
        def cursors(topic, place)
          @only_last = -place if place.is_a?(Integer) && place.negative?
          partitions(topic).map do |partition|
            from = @only_last ? partition["end"] - @only_last : place
            Cursor.new(client, topic["name"], partition, from, notes: @err)
          end
        end

        def print_all(cursors)
          return print_last(cursors) if @only_last

          while @left.positive? && (record = oldest(cursors))
            put(record)
          end
        end

        def print_last(cursors)
          kept = []
          while (record = oldest(cursors))
            kept << record
            kept.shift if kept.size > @only_last
          end
          kept.each { |one| put(one) if @left.positive? }
        end

        # Takes the oldest of the next records of all partitions.
        def oldest(cursors) = cursors.select(&:peek).min_by { |one| [one.peek.timestamp_ms, one.number] }&.shift

        # One thread per partition waits for records; this one prints them.
        def follow(cursors)
          queue = SizedQueue.new(WAITING_MAX)
          threads = cursors.map do |cursor|
            Thread.new do
              Thread.current.report_on_exception = false
              cursor.follow { |record| queue << record }
            rescue StandardError => e
              queue << e
            end
          end
          take(queue) while @left.positive?
        ensure
          threads&.each(&:kill)
        end

        def take(queue)
          got = queue.pop
          raise got if got.is_a?(StandardError)

          put(got)
        end

        def put(record)
          @left -= 1
          @out.puts json? ? JSON.generate(RecordFormat.data(record)) : RecordFormat.line(record)
          @out.flush if follow?
        end
      end
    end
  end
end
