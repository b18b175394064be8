# frozen_string_literal: true

module Chaton
  class CLI
    class Init < Command
      # Takes over the routes and the brokers of a karafka.rb. Its code is not run; each line that is not one of the
      # common ones becomes a comment.
      class KarafkaFile
        PATH = "karafka.rb"
        # Lines that need no counterpart.
        FRAME = /\A(?:end|}|\)|require.*|class\s\w+\s<\sKarafka::App|setup\sdo.*|config\.kafka\s=\s{|
                  Karafka::.*|(?:\w+App\.)?(?:routes|consumer_groups)\.draw\sdo.*)\z/x
        # A line of a topic => what a keyword of `topic` says.
        KEYWORDS = {
          /\Amanual_offset_management(?:\(| )true/ => ->(_) { "offsets: :manual" },
          /\Ainitial_offset[( ]+['":](earliest|latest)/ => ->(found) { "start: :#{found[1]}" },
          /\Adead_letter_queue[( ]+topic: ['":]([\w.-]+)['"]?(?:, max_retries: (\d+))?\)?\z/ =>
            ->(found) { ["dead_letter: #{found[1].inspect}", *("retries: #{found[2]}" if found[2])].join(", ") },
          /\Amax_messages[( ]+(\d+)/ => ->(found) { "batch: #{found[1]}" },
          /\Aconfig\(?[( ]partitions: (\d+)\)?\z/ => ->(found) { "partitions: #{found[1]}" }
        }.freeze

        # @return [Array<String>] of a config/chaton.rb
        def self.lines = File.file?(PATH) ? new(File.readlines(PATH, chomp: true)).lines : []

        def initialize(source)
          @source = source
          @settings = []
          @topics = []
          @group = nil
        end

        def lines
          @source.each.with_index(1) { |line, number| take(line.strip, number) unless line.strip.match?(/\A(?:#|\z)/) }
          ["# from #{PATH}", "streams do", *@settings, *@topics.map { |topic| topic_line(topic) }, "end"]
        end

        private

        def take(line, number)
          case line
          when FRAME then nil
          when /\A(?:consumer_group[( ]+|config\.group_id = )['":]([\w.-]+)/ then @group = Regexp.last_match(1)
          when /\Atopic[( ]+['":]([\w.-]+)['"]?\)?\s*(?:do|{)?(?:\s*consumer ([A-Z][\w:]*)\s*})?\z/
            @topics << [Regexp.last_match(1), Regexp.last_match(2), @group, []]
          when /\Aconsumer[( ]+([A-Z][\w:]*)\)?\z/ then @topics.last && @topics.last[1] = Regexp.last_match(1)
          when /['":]*bootstrap\.servers['"]?\s*(?:=>|:)\s*(.+?),?\s*}?\z/ then broker(Regexp.last_match(1))
          when /\A['"]([a-z][a-z.]+)['"]\s*(?:=>|:)\s*(.+?),?\z/
            @settings << "  kafka #{Regexp.last_match(1).inspect} => #{Regexp.last_match(2)}"
          else of_topic(line) || (@settings << "  # not taken over: #{PATH}:#{number}: #{line}")
          end
        end

        def broker(value)
          literal = value[/\A(['"])(.*)\1\z/, 2]
          @settings << "  broker #{literal ? "kafka://#{literal}".inspect : "\"kafka://\#{#{value}}\""}"
        end

        def of_topic(line)
          pattern, keyword = KEYWORDS.find { |one, _| one.match?(line) }
          @topics.last[3] << keyword.call(pattern.match(line)) if pattern && @topics.any?
        end

        def topic_line((name, consumer, group, keywords))
          parts = [name.inspect, *consumer&.inspect, *("group: #{(group || "app").inspect}" if consumer), *keywords]
          "  topic #{parts.join(", ")}"
        end
      end
    end
  end
end
