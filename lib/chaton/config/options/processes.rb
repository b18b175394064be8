# frozen_string_literal: true

require_relative "../types/processes"
require_relative "../types/text"
require_relative "../option"

module Chaton
  module Config
    module Options
      # Puma's and Rails' variables: two of them make one range.
      THREADS_OF_ENV = lambda do |env|
        max, min = %w[MAX MIN].map do |bound|
          %W[PUMA_#{bound}_THREADS #{bound}_THREADS RAILS_#{bound}_THREADS].find { |name| !env[name].to_s.empty? }
        end
        next unless max || min

        [[max, min].compact.join(" and "), "#{min ? env[min] : 1}:#{max ? env[max] : ""}"]
      end

      # Workers, threads, health.
      PROCESSES = [
        Option.new(
          name: :workers, group: :processes, type: Types::Workers.new, default: { every: 0 }.freeze,
          flags: %w[-w --workers], placeholder: "N", env: %w[WEB_CONCURRENCY],
          says: "Worker processes, each for all roles that are on, or a number for each role: web: 2, jobs: 1, " \
                "streams: 1. With 0 one process does everything, without a supervisor."
        ),
        Option.new(
          name: :preload, group: :processes, type: Types::Switch.new, flags: %w[--preload],
          default: ->(settings) { settings.fetch(:workers).values.sum.positive? },
          default_text: "on with workers", puma: %i[preload_app!],
          says: "Load the application once, before workers are forked, so that they share its memory."
        ),
        Option.new(
          name: :threads, group: :threads, type: Types::ThreadRange.new, default: Threads.new(1, 32, false).freeze,
          flags: %w[-t --threads], placeholder: "MIN:MAX", read: THREADS_OF_ENV,
          env: %w[RAILS_MAX_THREADS RAILS_MIN_THREADS],
          says: "Threads per process that run the application; the pool sizes itself within the range. With " \
                "ActiveRecord the default maximum is the size of its connection pool."
        ),
        Option.new(
          name: :service_stop_s, group: :processes, type: Types::Number.new(0.0..3600.0, unit: "seconds"), default: 5.0,
          says: "Time for the command of a `service` to end after TERM; then its process group is killed."
        ),
        Option.new(
          name: :service_lines_max, group: :processes, type: Types::Number.new(1..100_000), default: 200,
          says: "Lines of its output that are logged in a second; further ones are dropped and counted."
        ),
        Option.new(
          name: :thread_idle_s, group: :threads, type: Types::Number.new(0.1..86_400.0, unit: "seconds"), default: 10.0,
          says: "A thread above the minimum ends after it has been idle for this long."
        ),
        Option.new(
          name: :blocked_ms, group: :threads, type: Types::Number.new(0.01..1000.0, unit: "milliseconds"), default: 0.1,
          says: "While work waits, another thread is woken or started when no thread of the pool has run Ruby code " \
                "or wanted to for this long, because all of them wait for something else."
        ),
        Option.new(
          name: :stall_ms, group: :threads, type: Types::Number.new(0.01..1000.0, unit: "milliseconds"), default: 0.2,
          says: "Ruby 3.1 and 3.2 do not report which threads are blocked: while work waits, the threads' CPU clocks " \
                "are read this often."
        ),
        Option.new(
          name: :preempt_ms, group: :threads, type: Types::Number.new(1.0..100.0, unit: "milliseconds"), default: 4.0,
          says: "While work waits, a thread that has used the CPU for its quantum lets the next one run. The quantum " \
                "is three times the CPU time of the quicker quarter of recent work, at least this and at most 100 ms."
        ),
        Option.new(
          name: :background_share, group: :threads, type: Types::Number.new(1..99, unit: "a percentage"), default: 10,
          says: "Requests go before jobs and records of the same process. While requests wait all the time, jobs and " \
                "records get this share of the time."
        ),
        Option.new(
          name: :alive_timeout_s, group: :health, default: 60.0, development: 0.0, puma: %i[worker_timeout],
          type: Types::Number.new(1.0..86_400.0, unit: "seconds", off: true),
          says: "A worker in which no Ruby code could run for this long is killed and replaced; a busy one is not."
        ),
        Option.new(
          name: :boot_timeout_s, group: :health, default: 60.0, puma: %i[worker_boot_timeout],
          type: Types::Number.new(1.0..86_400.0, unit: "seconds"),
          says: "A worker, or the process that loads the new code of a phased restart, is killed if it is not ready " \
                "by then."
        ),
        Option.new(
          name: :shutdown_timeout_s, group: :health, default: 25.0, flags: %w[--shutdown-timeout], placeholder: "S",
          puma: %i[worker_shutdown_timeout force_shutdown_after],
          type: Types::Number.new(0.0..86_400.0, unit: "seconds"),
          says: "Time for running requests to finish when a process is asked to stop; then their backtraces are " \
                "logged and it exits."
        ),
        Option.new(
          name: :stop_delay_s, group: :health, default: 0.0, also: %i[stop_delay],
          type: Types::Number.new(0.0..3600.0, unit: "seconds"),
          says: "A server that serves web requests and is asked to stop goes on serving for this long first, so that " \
                "load balancers notice: it is not ready in `chaton status`."
        ),
        Option.new(
          name: :restart_file, group: :health, type: Types::Path.new(none: true), default: nil,
          says: "When this file is touched, the server loads the new code as by `chaton restart`. " \
                "`plugin :tmp_restart` sets it to tmp/restart.txt, which `bin/rails restart` touches."
        ),
        Option.new(
          name: :restart_delay_s, group: :health, type: Types::Number.new(0.0..3600.0, unit: "seconds"), default: 0.5,
          says: "Pause before a worker that died is replaced; it doubles with each failure in a row."
        ),
        Option.new(
          name: :restart_delay_max_s, group: :health, type: Types::Number.new(0.0..3600.0, unit: "seconds"),
          default: 30.0, says: "The longest such pause."
        ),
        Option.new(
          name: :crash_loop_count, group: :health, type: Types::Number.new(1..1000), default: 5,
          says: "A worker that fails to boot this many times in a row is not started again."
        ),
        Option.new(
          name: :crash_loop_window_s, group: :health, type: Types::Number.new(1.0..86_400.0, unit: "seconds"),
          default: 60.0, says: "How long the death of a worker that had been ready counts as a failure in a row; " \
                               "failed boots always count."
        )
      ].freeze
    end
  end
end
