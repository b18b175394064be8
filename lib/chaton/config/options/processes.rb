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

      # What workers of one role have instead of the option outside.
      OF_ONE_ROLE = %i[jobs streams].to_h { |role|
        [role, { group: role, default: nil, default_text: "as outside" }]
      }.freeze

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
                "ActiveRecord the default maximum is the size of its connection pool. In jobs { } or streams { }: " \
                "threads of a worker that runs nothing else.",
          elsewhere: OF_ONE_ROLE
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
                "logged and it exits. In jobs { } or streams { }: the same for a worker that runs nothing else; jobs " \
                "that still run go back to the front of their queues, and records are read again.",
          elsewhere: OF_ONE_ROLE
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
        )
      ].freeze
    end
  end
end
