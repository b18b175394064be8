# frozen_string_literal: true

require_relative "../config/types"
require_relative "../telemetry/size"
require_relative "paint"
require_relative "workload_report"

module Chaton
  class CLI
    # Prints a server's status for people.
    class StatusReport
      # Column => field of a worker; a dot separates nested fields.
      COLUMNS = {
        "worker" => "worker", "roles" => "roles", "pid" => "pid", "state" => "state", "ready" => "ready",
        "up" => "age_s", "gen" => "generation", "conns" => "connections", "queued" => "queued", "running" => "running",
        "threads" => "threads", "done" => "finished_total", "requests" => "requests_total", "shed" => "shed_total",
        "memory" => "memory.pss", "private" => "memory.private", "shared" => "memory.shared",
        "recycled" => "memory.recycles"
      }.freeze
      # The first of them that a narrow terminal does without.
      SPARE = %w[shared gen private recycled shed requests done conns queued threads up].freeze
      # Field of memory => what it is called; those of a server without workers are its process's.
      MEMORY = { "total" => "in all", "pss" => "in use", "private" => "private", "shared" => "shared",
                 "limit" => "ceiling", "limit_hard" => "hard ceiling", "limit_tree" => "ceiling of all",
                 "recycled_total" => "workers replaced for it", "hard_total" => "of them at once" }.freeze
      # Fields of memory that are counts.
      COUNTS = %w[recycles hards recycled_total hard_total].freeze

      # @return [String] 3725 → "1h 2m"
      def self.duration(seconds)
        minutes, rest = seconds.to_i.divmod(60)
        hours, minutes = minutes.divmod(60)
        days, hours = hours.divmod(24)
        parts = { "d" => days, "h" => hours, "m" => minutes, "s" => rest }.drop_while { |_, count| count.zero? }
        parts.empty? ? "0s" : parts.first(2).map { |unit, count| "#{count}#{unit}" }.join(" ")
      end

      # @param status [Hash{String=>Object}] as the control socket gives it
      # @param columns [Integer, nil] of the terminal; nil: nothing is left out
      def initialize(status, paint: Paint.new(false), columns: nil)
        @status = status
        @paint = paint
        @columns = columns
      end

      def to_s
        title, *listening = head.lines(chomp: true)
        [@paint.call(title, :bold), *listening, *bad(unready), workers, *bad(given_up), *commands, *memory,
         workload, *event_streams, *running, *stores].compact.join("\n")
      end

      # @return [Array<String>] lines about the stores that the server works on
      def stores = [*jobs, *streams]

      # @return [String] what it is, and where it listens
      def head
        state = @status["ready"] == false && @status["state"] == "running" ? "running, not ready" : @status["state"]
        facts = [@status["tag"], @status["environment"], state, "pid #{@status["pid"]}",
                 *@status["preloaders"]&.map { |pid| "preloader #{pid}" }, "up #{duration(@status["uptime_s"])}"]
        listen = Array(@status["listen"])
        @head ||= ["chaton #{@status["version"]}  #{facts.compact.join("  ")}",
                   *("listening on #{listen.join(" ")}" unless listen.empty?)].join("\n")
      end

      private

      def bad(lines) = lines.map { |line| @paint.call(line, :red) }

      # As `/ready` says it.
      def unready = @status["state"] == "running" ? Array(@status["unready"]) : []

      def workers
        rows = Array(@status["workers"])
        return if rows.empty?

        cells = COLUMNS.map { |name, field| [name, *rows.map { |row| value(row, field) }] }
        cells = within(cells.map { |column| [column.first, column.map(&:length).max, column] })
        first, *others = cells.map { |_, width, column| column.map { |text| text.rjust(width) } }
          .transpose.map { |row| row.join("  ") }
        colours = rows.map { |row| ready_colour(row) }
        [@paint.call(first, :bold), *others.zip(colours).map { |line, colour| @paint.call(line, *colour) }].join("\n")
      end

      # @param columns [Array<Array(String, Integer, Array<String>)>] name, width and texts
      # @return [Array] those for which there is room
      def within(columns)
        SPARE.each do |name|
          break unless @columns && columns.sum { |_, width, _| width + 2 } - 2 > @columns

          columns = columns.reject { |one, _, _| one == name }
        end
        columns
      end

      # Nothing for a worker that serves.
      def ready_colour(row)
        row["ready"] || row["ready"].nil? ? [] : [:yellow]
      end

      def value(row, field)
        name, part = field.split(".")
        part ? amount(part, row.dig(name, part)) : cell(name, row[name])
      end

      # Ceilings, and why workers were replaced.
      def memory
        memory = @status["memory"]&.except("recycling")&.compact or return []
        reasons = Array(@status["workers"]).filter_map { |row| past(row) }.uniq
        facts = memory.reject { |name, value| COUNTS.include?(name) && value.zero? }
        [fold("memory:", facts.map { |name, value| "#{amount(name, value)} #{MEMORY.fetch(name, name)}" }), *reasons]
      end

      def amount(name, value)
        COUNTS.include?(name) ? cell(name, value) : Telemetry::Size.of(value)
      end

      def past(row)
        reason = row.dig("memory", "reason")
        "worker #{row["worker"]} was last replaced because #{reason}" if reason
      end

      def given_up
        Array(@status["given_up"]).map { |one| "worker #{one["worker"]} is not started again: #{one["reason"]}" }
      end

      # The commands of `service` lines.
      def commands
        Array(@status["services"]).map do |one|
          pid, starts = one.values_at("pid", "starts")
          facts = [one["state"], *(["pid #{pid}", "up #{duration(one["age_s"])}"] if pid)]
          "service #{one["name"]}: #{facts.join("  ")}  started #{starts == 1 ? "once" : "#{starts} times"}"
        end
      end

      # What a server without workers does.
      def workload
        facts = @status["workload"] or return
        streams = facts["streams"]
        [*WorkloadReport.new(facts).lines, *("streams: #{engine(streams)}" if streams)].join("\n")
      end

      # Totals of the streams engine; `--json` also has each partition.
      def engine(stats)
        troubles = stats["groups"].filter_map { |group| "#{group["name"]}: #{group["trouble"]}" if group["trouble"] }
        [line(stats["totals"]), *troubles].join("\n  ")
      end

      # Nothing without one.
      def event_streams
        figures = @status["event_streams"].to_h
        return [] if figures.values.all?(0)

        open, sent, gaps, refused, lag, kept, bytes =
          figures.values_at("open", "delivered", "gaps", "refused", "lag", "history_messages", "history_bytes")
        facts = ["#{line(open)} open", "#{line(sent)} events sent", "#{line(gaps)} gaps",
                 *("#{line(refused)} clients refused" if refused.to_i.positive?),
                 "the slowest is #{line(lag)} messages behind",
                 "history of #{line(kept)} messages in #{amount("", bytes)}"]
        [fold("event streams:", facts)]
      end

      def running
        Array(@status.dig("workload", "running")).map do |unit|
          "running: #{unit["what"]}  #{Config::Types.thousands(unit["age_ms"])} ms  thread #{unit["thread"]}"
        end
      end

      # Figures of the store, which several servers may share.
      def jobs
        jobs = @status["jobs"] or return []
        place = at("jobs", jobs["store"])
        return bad(["#{place}: #{jobs["error"]}"]) if jobs["error"]

        [fold("#{place}:", jobs["stats"].map { |name, count| "#{name} #{line(count)}" }),
         *jobs["queues"].map { |queue| "queue #{queue["name"]}: #{waiting(queue)}" }, *outbox(jobs["outbox"].to_h)]
      end

      # Nothing while no record waits.
      def outbox(records)
        waiting, refused, lag_s = records.values_at("waiting", "refused", "lag_s")
        return [] unless waiting.to_i + refused.to_i > 0

        lines = ["outbox: #{line(waiting)} records wait, the oldest for #{lag_s.round(1)} s"]
        lines += bad(["outbox: the log refuses #{line(refused)} records: chaton.outbox_refused"]) if refused.positive?
        lines
      end

      def waiting(queue)
        return "nothing waits#{", paused" if queue["paused"]}" if queue["size"].zero?

        "#{Config::Types.thousands(queue["size"])} waiting, the next for #{queue["latency_s"].round(1)} s" \
          "#{", paused" if queue["paused"]}"
      end

      # In as many lines as the terminal needs.
      def fold(title, facts)
        lines = facts.each_with_object([title.dup]) do |fact, found|
          found << +"" if @columns && found.last.length + fact.length + 2 > @columns
          found.last << "  " << fact
        end
        lines.map { |one| one.sub(":  ", ": ") }.join("\n")
      end

      # Of the log, which others may read too.
      def streams
        streams = @status["streams"] or return []
        return bad(["#{at("streams", streams["broker"])}: #{streams["error"]}"]) if streams["error"]

        streams["groups"].flat_map do |group|
          ["#{at("group #{group["name"]}", streams["broker"])}: #{progress(group)}", *bad(stops(group))]
        end
      end

      def stops(group)
        Array(group["stopped"]).map do |one|
          topic, partition, from, to = one.values_at("topic", "partition", "from", "to")
          "group #{group["name"]} has stopped in #{topic}/#{partition}: records #{from} to #{to} are gone " \
            "(on_gap: :stop)"
        end
      end

      def progress(group)
        topics, missing = group.values_at("topics", "missing_topics").map { |names| Array(names) }
        count = group["partitions"]
        paused = group["paused"].to_i
        partitions = "#{count} #{count == 1 ? "partition" : "partitions"}"
        partitions << ", #{paused} paused," if paused.positive?
        there = "lag #{Config::Types.thousands(group["lag"])} in #{partitions} of #{topics.join(" ")}"
        waits = "waits for #{missing.join(" ")}, which #{missing.size == 1 ? "does" : "do"} not exist yet"
        [*(there unless topics.empty?), *(waits unless missing.empty?)].join("; ")
      end

      # A configuration that cannot be read names no place.
      def at(what, place) = place ? "#{what} at #{place}" : what

      def line(value)
        return cell(nil, value) unless value.is_a?(Hash)

        value.map { |name, one| "#{name} #{line(one)}" }.join("  ")
      end

      def cell(field, value)
        return duration(value) if field == "age_s" && value

        case value
        when nil then "-"
        when true then "yes"
        when false then "no"
        when Array then value.join(field == "roles" ? "+" : " ")
        when Integer then %w[pid worker].include?(field) ? value.to_s : Config::Types.thousands(value)
        else value.to_s
        end
      end

      def duration(seconds) = self.class.duration(seconds)
    end
  end
end
