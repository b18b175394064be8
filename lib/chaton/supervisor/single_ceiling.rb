# frozen_string_literal: true

require_relative "../native"
require_relative "../telemetry/size"
require_relative "event_loop"
require_relative "memory_limits"
require_relative "own_restarts"

module Chaton
  class Supervisor
    # The ceiling of a server without workers: nobody can take over, so it collects and trims, and when that is no help
    # it starts again in place, which finishes what runs and keeps the listening sockets open. At the hard ceiling it
    # does that without trimming first.
    class SingleCeiling
      # As {CeilingPolicy}: what trimming may take, and how long it is not repeated.
      RELIEF_S = (0.5..60.0)
      # When its success is looked at, should the next look be later than that.
      RELIEF_SEEN_S = 2.0

      # @return [Hash{String=>String}] what the next life of this process must find in its environment
      attr_reader :bequest

      # @param settings [Config::MemorySettings]
      # @param restarts [Boolean] whether it may start again; otherwise it only says so
      # @param log [Telemetry::Log]
      # @param past [OwnRestarts] its former lives
      # @param kernel [#process, #resident, #cgroup] who tells
      # @param now_s [Float]
      # @raise [ConfigError] when what is loaded is above the ceiling
      def initialize(settings, restarts:, log:, past: OwnRestarts.arrive, kernel: Native::Memory,
                     now_s: EventLoop.now_s)
        @limits = MemoryLimits.read(settings, log: log, kernel: kernel)
        @every_s = settings.check_every_s
        @restarts = restarts
        @past = past
        @bequest = {}
        @log = log
        @kernel = kernel
        @began_at_s = now_s
        @next_at_s = now_s + @every_s
        @limits.check(usage&.fetch(:pss)) if line
      end

      # @return [Float, nil]
      def due_at = line && @next_at_s

      # Looks, and says what is to be done.
      #
      # @param now_s [Float]
      # @return [Symbol, nil] :trim, :restart or nothing
      def look(now_s)
        return if line.nil? || now_s < @next_at_s

        @next_at_s = now_s + @every_s
        used = used_bytes
        return answer(used, now_s) if used >= line

        @said = false
        @early = false
        nil
      end

      # @return [Hash{Symbol=>Object}] for `status`; sizes in bytes
      def to_h = { **(usage || {}), **@limits.to_h }

      private

      # With one process its ceiling and that of all processes are one.
      def line = [@limits.worker, @limits.tree].compact.min

      def usage = @kernel.process(Process.pid)

      # Resident memory is never less than what counts, and costs next to nothing to read.
      def used_bytes
        resident = @kernel.resident(Process.pid).to_i
        resident < line ? resident : usage&.fetch(:pss) || resident
      end

      # @return [Symbol, nil]
      def answer(used, now_s)
        @early ||= !old_enough?(now_s)
        # No time to see whether trimming helps.
        return restart(used, now_s) if @limits.hard && used >= @limits.hard

        since_s = @relieved_at_s && (now_s - @relieved_at_s)
        return trim(used, now_s) if since_s.nil? || since_s >= RELIEF_S.end
        return if since_s < RELIEF_S.begin

        restart(used, now_s)
      end

      def trim(used, now_s)
        @relieved_at_s = now_s
        @next_at_s = [@next_at_s, now_s + RELIEF_SEEN_S].min
        tell(:info, "collecting and trimming", used) unless @said
        :trim
      end

      def restart(used, now_s)
        may = @restarts && old_enough?(now_s)
        tell(may && !@early ? :info : :warn, consequence(may), used) unless @said && !may
        @said = !may
        return unless may

        @bequest = @past.next(early: @early).to_env
        :restart
      end

      # One that is above its ceiling sooner would start again and again.
      def old_enough?(now_s) = now_s - @began_at_s >= @past.age_s

      def consequence(may)
        return "in development it goes on" unless @restarts
        return "it runs for less than #{@past.age_s.round} s and goes on; raise `limit` in `memory { }`" unless may
        return "starting again in place" unless @early

        "starting again in place, though it was that large early: next time not before " \
          "#{@past.next(early: true).age_s.round} s; raise `limit` in `memory { }`"
      end

      def tell(level, what, used)
        size = Telemetry::Size
        @log.public_send(level, "memory reached #{size.of(used)} of #{size.of(line)}: #{what}")
      end
    end
  end
end
