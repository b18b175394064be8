# frozen_string_literal: true

require_relative "command"
require_relative "writing"

module Chaton
  class CLI
    module Streams
      # chaton streams produce TOPIC [VALUE | -]
      class Produce < Command
        def self.own = %i[key header partition]

        def self.switches = [*super, "--tombstone"]

        # @raise [LogError] when a record did not become durable
        def run
          topic, text = positional("TOPIC", more: 1)
          check(text)
          writing = Writing.new(client, **patience)
          each_some(text) { |values| writing.write(values.map { |value| record(topic, value) }) }
          writing.finish
          report(topic, writing)
        end

        private

        def check(text)
          return unless @arguments.switch?("--tombstone")
          raise ConfigError, "a tombstone has no value; leave #{text.inspect} out" if text
          raise ConfigError, "a tombstone needs the key that it takes away: --key KEY" unless value(:key)
        end

        def each_some(text, &block)
          return yield [nil] if @arguments.switch?("--tombstone")

          text && text != "-" ? yield([text]) : each_some_lines(&block)
        end

        # What has come so far, so that a line that is typed is written at once and a large file in few calls.
        def each_some_lines
          lines = SizedQueue.new(Writing::BATCH)
          reader = Thread.new do
            $stdin.each_line(chomp: true) { |line| lines << line }
          ensure
            lines.close
          end
          while (line = lines.pop)
            some = [line]
            some << lines.pop until some.size == Writing::BATCH || lines.empty?
            yield some
          end
        ensure
          reader&.kill
        end

        def record(topic, value) = [topic, value, value(:key), value(:header), value(:partition), nil]

        def report(topic, writing)
          written = { topic: topic, records: writing.count, partition: writing.partition, offset: writing.offset }
          return answer(written, "nothing was written") if writing.count.zero?

          count = "#{Config::Types.thousands(writing.count)} record#{"s" if writing.count > 1}"
          answer(written, "#{count} written to #{topic}, the last to partition #{writing.partition}, offset " \
                          "#{writing.offset}")
        end
      end
    end
  end
end
