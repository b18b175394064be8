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
        Option.in(:top, :workers, :processes, Types::Workers.new, { every: 0 }.freeze,
                  "Worker processes, each for all roles that are on, or a number for each role: web: 2, jobs: 1, " \
                  "streams: 1. With 0 one process does everything, without a supervisor.",
                  flags: %w[-w --workers], placeholder: "N", env: %w[WEB_CONCURRENCY]),
        Option.in(:top, :preload, :processes, Types::Switch.new,
                  ->(settings) { settings.fetch(:workers).values.sum.positive? },
                  "Load the application once, before workers are forked, so that they share its memory.",
                  flags: %w[--preload], default_text: "on with workers", puma: %i[preload_app!]),
        Option.in(:top, :threads, :threads, Types::ThreadRange.new, Threads.new(1, 32, false).freeze,
                  "Threads per process that run the application; the pool sizes itself within the range. With " \
                  "ActiveRecord the default maximum is the size of its connection pool. In jobs { } or streams { }: " \
                  "threads of a worker that runs nothing else.",
                  flags: %w[-t --threads], placeholder: "MIN:MAX", read: THREADS_OF_ENV,
                  env: %w[RAILS_MAX_THREADS RAILS_MIN_THREADS], elsewhere: OF_ONE_ROLE),
        Option.in(:top, :cpu_affinity, :threads, Types::Switch.new, true,
                  "Bind the threads of a process to one core while they often hand Ruby's lock to each other. " \
                  "Programs and threads that the application starts are not bound. Ruby 3.3 and later.", engine: :pool),
        Option.in(:top, :alive_timeout_s, :health, Types::Number.new(1.0..86_400.0, unit: "seconds", off: true), 60.0,
                  "A worker in which no Ruby code could run for this long is killed and replaced; a busy one is not.",
                  development: 0.0, puma: %i[worker_timeout]),
        Option.in(:top, :boot_timeout_s, :health, Types::Number.new(1.0..86_400.0, unit: "seconds"), 60.0,
                  "A worker, or the process that loads the new code of a phased restart, is killed if it is not " \
                  "ready by then.", puma: %i[worker_boot_timeout]),
        Option.in(:top, :shutdown_timeout_s, :health, Types::Number.new(0.0..86_400.0, unit: "seconds"), 25.0,
                  "Time for running requests to finish when a process is asked to stop; then their backtraces are " \
                  "logged and it exits. In jobs { } or streams { }: the same for a worker that runs nothing else; " \
                  "jobs that still run go back to the front of their queues, and records are read again.",
                  flags: %w[--shutdown-timeout], placeholder: "S",
                  puma: %i[worker_shutdown_timeout force_shutdown_after], elsewhere: OF_ONE_ROLE),
        Option.in(:top, :stop_delay_s, :health, Types::Number.new(0.0..3600.0, unit: "seconds"), 0.0,
                  "A server that serves web requests and is asked to stop goes on serving for this long first, so " \
                  "that load balancers notice: it is not ready in `chaton status`.", also: %i[stop_delay]),
        Option.in(:top, :restart_file, :health, Types::Path.new(none: true), nil,
                  "When this file is touched, the server loads the new code as by `chaton restart`. `plugin " \
                  ":tmp_restart` sets it to tmp/restart.txt, which `bin/rails restart` touches.")
      ].freeze
    end
  end
end
