# frozen_string_literal: true

require_relative "command"
require_relative "record_writer"

module Chaton
  class CLI
    module Streams
      # chaton streams produce TOPIC [VALUE | -]
      class Produce < Command
        def self.own_options = %i[key header partition]

        def self.switches = [*super, "--tombstone"]

        # @raise [StreamError] when a record did not become durable
        def run
          topic, text = positional("TOPIC", more: 1)
          check(text)
          @is_new = admin.topic(topic).nil?
          writer = RecordWriter.new(client, **timeouts)
          each_batch(text) { |values| writer.write(values.map { |value| record(topic, value) }) }
          writer.finish
          report(topic, writer)
        end

        private

        def makes_log? = true

        def check(text)
          return unless @arguments.switch?("--tombstone")
          raise ConfigError, "a tombstone has no value; leave #{text.inspect} out" if text
          raise ConfigError, "a tombstone needs the key that it deletes: --key KEY" unless value(:key)
        end

        def each_batch(text, &block)
          return yield [nil] if @arguments.switch?("--tombstone")

          text && text != "-" ? yield([text]) : each_lines(&block)
        end

        # Yields the lines that have arrived, so that a typed line is written at once and a large file in few calls.
        def each_lines
          lines = SizedQueue.new(RecordWriter::BATCH)
          reader = Thread.new do
            $stdin.each_line(chomp: true) { |line| lines << line }
          ensure
            lines.close
          end
          while (line = lines.pop)
            batch = [line]
            batch << lines.pop until batch.size == RecordWriter::BATCH || lines.empty?
            yield batch
          end
        ensure
          reader&.kill
        end

        def record(topic, value) = [topic, value, value(:key), value(:header), value(:partition), nil]

        def report(topic, writer)
          written = { topic: topic, records: writer.count, partition: writer.partition, offset: writer.offset,
                      created: @is_new && writer.count.positive? }
          return answer(written, "nothing was written") if writer.count.zero?

          count = "#{Config::Types.thousands(writer.count)} record#{"s" if writer.count > 1}"
          created = "topic #{topic} was created; " if @is_new
          answer(written, "#{created}#{count} written to #{topic}, the last to partition #{writer.partition}, offset " \
                          "#{writer.offset}")
        end
      end
    end
  end
end
