# frozen_string_literal: true

require_relative "../native"
require_relative "../telemetry/size"
require_relative "event_loop"
require_relative "memory_limits"
require_relative "memory_restarts"

module Chaton
  class Supervisor
    # The memory ceiling of a server without workers. No other process can take over, so it collects and trims, and if
    # that does not help it restarts in place, which finishes running work and keeps the listening sockets open. At the
    # hard ceiling it does that without trimming first.
    class SingleCeiling
      # As in {CeilingPolicy}: the duration of a trim, and the time for which it is not repeated.
      TRIM_S = (0.5..60.0)
      # When the effect is read, unless the next regular reading comes earlier.
      TRIM_READ_AFTER_S = 2.0

      # @return [Hash{String=>String}] variables for the next run of this process
      attr_reader :restart_environment

      # @param restarts [Boolean] whether it may restart; otherwise it only logs
      # @param past [MemoryRestarts] of the runs before this one
      # @param kernel [#process, #resident, #cgroup] reads the figures
      # @raise [ConfigError] when the loaded application alone is above the ceiling
      def initialize(settings, restarts:, log:, past: MemoryRestarts.from_env, kernel: Native::Memory,
                     now_s: EventLoop.now_s)
        @limits = MemoryLimits.read(settings, log: log, kernel: kernel)
        @every_s = settings.check_every_s
        @restarts = restarts
        @past = past
        @restart_environment = {}
        @log = log
        @kernel = kernel
        @began_at_s = now_s
        @next_at_s = now_s + @every_s
        @limits.check(usage&.fetch(:pss)) if ceiling
      end

      def due_at = ceiling && @next_at_s

      # Reads the memory if it is due.
      #
      # @return [Symbol, nil] what is to be done: :trim, :restart or nothing
      def check(now_s)
        return if ceiling.nil? || now_s < @next_at_s

        @next_at_s = now_s + @every_s
        used = used_bytes
        return reduce(used, now_s) if used >= ceiling

        @logged = false
        @early = false
        nil
      end

      # @return [Hash{Symbol=>Object}] for `status`; sizes in bytes
      def to_h = { **(usage || {}), **@limits.to_h }

      private

      # For one process its own ceiling and that of all processes are the same.
      def ceiling = [@limits.worker, @limits.tree].compact.min

      def usage = @kernel.process(Process.pid)

      # Resident memory is never less than the figure that counts (PSS), and is cheap to read.
      def used_bytes
        resident = @kernel.resident(Process.pid).to_i
        resident < ceiling ? resident : usage&.fetch(:pss) || resident
      end

      def reduce(used, now_s)
        @early ||= !old_enough?(now_s)
        # There is no time to read the effect of a trim.
        return restart(used, now_s) if @limits.hard && used >= @limits.hard

        since_s = @trimmed_at_s && (now_s - @trimmed_at_s)
        return trim(used, now_s) if since_s.nil? || since_s >= TRIM_S.end
        return if since_s < TRIM_S.begin

        restart(used, now_s)
      end

      def trim(used, now_s)
        @trimmed_at_s = now_s
        @next_at_s = [@next_at_s, now_s + TRIM_READ_AFTER_S].min
        log(:info, "collecting and trimming", used) unless @logged
        :trim
      end

      def restart(used, now_s)
        may = @restarts && old_enough?(now_s)
        log(may && !@early ? :info : :warn, consequence(may), used) unless @logged && !may
        @logged = !may
        return unless may

        @restart_environment = @past.next(early: @early).to_env
        :restart
      end

      # A process that reaches its ceiling earlier would restart again and again.
      def old_enough?(now_s) = now_s - @began_at_s >= @past.age_s

      def consequence(may)
        return "it goes on, because it does not restart in development" unless @restarts
        return "it runs for less than #{@past.age_s.round} s and goes on; raise `limit` in `memory { }`" unless may
        return "starting again in place" unless @early

        "starting again in place, although it reached that size early: next time not before " \
          "#{@past.next(early: true).age_s.round} s; raise `limit` in `memory { }`"
      end

      def log(level, consequence, used)
        size = Telemetry::Size
        @log.public_send(level, "memory reached #{size.of(used)} of #{size.of(ceiling)}: #{consequence}")
      end
    end
  end
end
