# frozen_string_literal: true

require "json"
require_relative "queue_selection"
require_relative "types"

module Chaton
  module Config
    # A periodic job: it is enqueued once at each tick, for any number of processes. Its queue is nil if the class sets
    # it.
    CronLine = Struct.new(:name, :expression, :class_name, :zone, :args, :queue, keyword_init: true) do
      # @return [String] "nightly: 0 3 * * * Europe/Berlin → CleanUp"
      def to_s
        "#{name}: #{expression} #{zone} → #{class_name}#{" (#{queue})" if queue}"
      end
    end
    # Used if no zone is named.
    CronLine::ZONE = "UTC"

    module Types
      # `cron "nightly", "0 3 * * *", "CleanUp", zone: "Europe/Berlin", args: [7], queue: "low"`.
      class CronSchedule < Base
        # The fields of an expression: name, range, and names for numbers.
        FIELDS = [
          ["minute", 0..59, []], ["hour", 0..23, []], ["day", 1..31, []],
          ["month", 1..12, %w[jan feb mar apr may jun jul aug sep oct nov dec]],
          ["weekday", 0..7, %w[sun mon tue wed thu fri sat]]
        ].freeze
        # The additional first field of an expression with six.
        SECOND = ["second", 0..59, []].freeze
        # Further values of a field: the last day (L), the weekday next to a day (15W), the second (fri#2) or last
        # (friL) one of a month.
        ALSO = { "day" => /\A(L|\d{1,2}W)\z/i,
                 "weekday" => /\A([0-7]|sun|mon|tue|wed|thu|fri|sat)(#[1-5]|L)\z/i }.freeze
        # Words for expressions.
        WORDS = { "@hourly" => "0 * * * *", "@daily" => "0 0 * * *", "@midnight" => "0 0 * * *",
                  "@weekly" => "0 0 * * 0", "@monthly" => "0 0 1 * *", "@yearly" => "0 0 1 1 *",
                  "@annually" => "0 0 1 1 *" }.freeze
        # Keywords after the class.
        KEYWORDS = %i[zone args queue].freeze
        # A name in the database of time zones.
        ZONE = %r{\A[A-Za-z][\w+-]*(/[A-Za-z0-9_+-]+){0,2}\z}
        # Where systems store that database.
        ZONES = "/usr/share/zoneinfo"

        def initialize = super("a name, an expression and a class: cron \"nightly\", \"0 3 * * *\", \"CleanUp\"")

        def arguments = 3..4

        def list? = true

        def cast(name, expression, job, keywords = {})
          mismatch([name, expression, job, keywords]) unless keywords.is_a?(Hash)
          unknown = keywords.keys - KEYWORDS
          raise Mismatch, "has no #{unknown.first}:; there are #{KEYWORDS.join(":, ")}:" unless unknown.empty?

          CronLine.new(name: word("name", name), expression: expression(expression), class_name: class_name(job),
                       zone: zone(keywords.fetch(:zone, CronLine::ZONE)), args: args(keywords.fetch(:args, [])),
                       queue: keywords[:queue] && word("queue", keywords[:queue])).freeze
        end

        def show(lines) = Array(lines).empty? ? "none" : lines.join("; ")

        private

        def word(what, value)
          text = value.to_s
          return text.dup.freeze if [String, Symbol].include?(value.class) && text.match?(QueueList::NAME)

          raise Mismatch, "needs a #{what} without spaces, not #{value.inspect}"
        end

        def class_name(value)
          text = value.to_s
          text.match?(/\A(::)?[A-Z]\w*(::[A-Z]\w*)*\z/) or
            raise Mismatch, "needs the name of a job class (\"CleanUp\"), not #{value.inspect}"
          text.delete_prefix("::").freeze
        end

        def expression(value)
          text = WORDS.fetch(value.to_s.strip.downcase, value.to_s.strip)
          fields = text.split
          rules = fields.size > FIELDS.size ? [SECOND, *FIELDS] : FIELDS
          unless fields.size == rules.size
            raise Mismatch, "has the expression #{value.inspect}, which needs five fields (minute, hour, day, month, " \
                            "weekday), a sixth before them for seconds, or #{WORDS.keys.first(3).join(", ")}"
          end
          fields.zip(rules) { |field, rule| check(field, value, *rule) }
          text.freeze
        end

        # Each part of a list: *, a, a-b, and with /n every nth of them.
        def check(field, whole, name, range, names)
          fits = !field.empty? && field.split(",", -1).all? do |part|
            span, step, more = part.split("/", -1)
            next true if ALSO[name]&.match?(part)

            more.nil? && (step.nil? || step.match?(/\A0*[1-9]\d{0,2}\z/)) && span?(span.to_s, range, names)
          end
          return if fits

          words = names.empty? ? "" : " or #{names.first} to #{names.last}"
          raise Mismatch, "has the expression #{whole.inspect}, whose #{name} #{field.inspect} is not *, numbers " \
                          "from #{range.begin} to #{range.end}#{words}, ranges (1-5), lists (1,3) or steps (*/5)"
        end

        def span?(span, range, names)
          return true if span == "*"

          low, high, more = span.split("-", -1).map { |one| number(one, range, names) }
          numbers = span.count("-").zero? ? [low] : [low, high]
          more.nil? && numbers.all? { |one| one && range.cover?(one) } && (high.nil? || low <= high)
        end

        def number(text, range, names)
          index = names.index(text.downcase)
          index ? index + range.begin : Integer(text, 10, exception: false)
        end

        def zone(value)
          text = value.to_s
          known = text.match?(ZONE) && (!File.directory?(ZONES) || File.file?(File.join(ZONES, text)))
          return text.dup.freeze if known

          raise Mismatch, "has the zone #{value.inspect}, which is not a time zone; write one such as " \
                          "\"Europe/Berlin\" or \"UTC\""
        end

        def args(value)
          raise Mismatch, "takes args: as an Array, not #{value.inspect}" unless value.is_a?(Array)
          return Ractor.make_shareable(JSON.parse(JSON.generate(value))) if round_trip?(value)

          raise Mismatch, "has args: that JSON cannot represent: #{value.inspect}; use strings, numbers, " \
                          "true, false, nil, arrays and hashes with string keys"
        end

        def round_trip?(value)
          JSON.parse(JSON.generate(value)) == value
        rescue JSON::JSONError
          false
        end
      end
    end
  end
end
