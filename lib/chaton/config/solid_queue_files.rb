# frozen_string_literal: true

require_relative "options"
require_relative "problem"

module Chaton
  module Config
    # Reads Solid Queue's config/recurring.yml and config/queue.yml, for what no other source sets, in an application
    # whose bundle no longer has Solid Queue: while it has, both would enqueue each recurring job.
    class SolidQueueFiles
      QUEUE = "config/queue.yml"
      RECURRING = "config/recurring.yml"
      # Entries of a Rails application of its own for Solid Queue's tables.
      OWN_COMMAND = /\ASolidQueue::/
      DAYS = %w[sunday monday tuesday wednesday thursday friday saturday].freeze
      # Unit => the cron fields of "every N units", with the step in the place of N.
      STEPS = { "second" => "*/N * * * * *", "minute" => "*/N * * * *", "hour" => "0 */N * * *" }.freeze
      # Largest step that comes out even in its field: "every 40 minutes" is no line of cron.
      WHOLE = { "second" => 60, "minute" => 60, "hour" => 24 }.freeze

      # A schedule as words or cron has it, with the zone that may be its last word.
      #
      # @param text [String] "every day at 3am", "*/5 * * * * Europe/Berlin"
      # @return [Array(String, String)] expression and zone, where there is one; nil: not understood
      def self.schedule(text)
        words = text.strip
        zone = words[%r{\s([A-Z]\w+/[\w/+-]+|UTC)\z}, 1]
        words = words.delete_suffix(zone).rstrip if zone
        found = words.match?(/\A(?:[\d*@]|L\b)/) ? words : in_words(words.downcase)
        found && [found, zone]
      end

      def self.in_words(words)
        case words
        when /\Aevery (?:(\d+) )?(second|minute|hour)s?\z/ then step(Regexp.last_match(1), Regexp.last_match(2))
        when /\Aevery hour at minute (\d{1,2})\z/ then "#{Regexp.last_match(1)} * * * *"
        when /\A(?:every day|daily)(?: at (.+))?\z/, /\Aat (.+) every day\z/ then daily(Regexp.last_match(1), "*")
        when /\Aevery (#{DAYS.join("|")})(?: at (.+))?\z/
          daily(Regexp.last_match(2), DAYS.index(Regexp.last_match(1)).to_s)
        when /\Aevery (?:weekday|week day)(?: at (.+))?\z/ then daily(Regexp.last_match(1), "1-5")
        end
      end

      def self.step(count, unit)
        return STEPS.fetch(unit).sub("*/N", "*") unless count

        STEPS.fetch(unit).sub("N", count) if count.to_i.positive? && (WHOLE.fetch(unit) % count.to_i).zero?
      end

      def self.daily(time, days)
        time ||= "midnight"
        hour, minute, half = time.match(/\A(\d{1,2})(?::(\d{2}))? ?(am|pm)?\z/)&.captures ||
                             { "midnight" => ["0"], "noon" => ["12"] }[time]
        return unless hour

        hour = (hour.to_i % 12) + (half == "pm" ? 12 : 0) if half
        "#{minute.to_i} #{hour.to_i} * * #{days}"
      end
      private_class_method :in_words, :step, :daily

      # @param sources [Sources] gets the values
      def initialize(sources, root:, environment:)
        @sources = sources
        @root = root
        @environment = environment
      end

      def read
        return if Gem.loaded_specs.key?("solid_queue") || @sources.services.any? { |line| line.name == "solid_queue" }

        file(QUEUE) { |settings, origin| workers(settings["workers"], origin) } unless @sources.set?(:queues)
        file(RECURRING) { |tasks, origin| tasks.each { |name, task| recurring(name, task, origin) } } unless cron?
      end

      private

      def cron? = @sources.set?(:cron)

      def file(name)
        path = File.join(@root, name)
        return unless File.file?(path)

        require "erb"
        require "yaml"
        text = ERB.new(File.read(path), trim_mode: "-").result
        found = YAML.safe_load(text, permitted_classes: [Symbol], aliases: true)
        found = found[@environment] || (found.key?("production") ? {} : found) if found.is_a?(Hash)
        yield(found, Origin.new(name)) if found.is_a?(Hash)
      rescue ScriptError, StandardError => e
        @sources.problem(Origin.new(name), "cannot be read: #{e.message.lines.first.to_s.strip} (#{e.class})")
      end

      def workers(workers, origin)
        names = Array(workers).flat_map { |one| Array(one["queues"]).flat_map { |text| text.to_s.split(/ *, */) } }
        open, names = names.uniq.partition { |name| name.include?("*") }
        unless open.empty?
          @sources.note(origin, "queues #{open.first.inspect} is not read: write jobs { queues \"default\", … } with " \
                                "the name of each queue")
        end
        @sources.assign(:sidekiq, Options[:queues], names, origin, label: "queues") unless names.empty?
        threads = Array(workers).filter_map { |one| one["threads"] }.max
        return if threads.nil? || @sources.set?(:jobs_threads)

        @sources.assign(:sidekiq, Options[:jobs_threads], [1, threads], origin, label: "threads")
      end

      def recurring(name, task, origin)
        return if OWN_COMMAND.match?(task["command"].to_s)
        return later(origin, name, "a command has no counterpart; write a job class") unless task["class"]

        expression, zone = SolidQueueFiles.schedule(task["schedule"].to_s)
        return later(origin, name, "its schedule #{task["schedule"].inspect} is not understood") unless expression

        keywords = { args: Array(task["args"]), queue: task["queue"], zone: zone }.compact
        @sources.assign(:sidekiq, Options[:cron], [name, expression, task["class"], keywords], origin, label: "cron")
      end

      # A job that does not run is worse than a server that does not start.
      def later(origin, name, why)
        @sources.problem(origin, "#{name}: #{why}: jobs { cron #{name.inspect}, \"0 3 * * *\", \"SomeJob\" } in " \
                                 "config/chaton.rb, or remove the entry")
      end
    end
  end
end
