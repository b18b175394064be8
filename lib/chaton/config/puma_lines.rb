# frozen_string_literal: true

module Chaton
  module Config
    # Lines of a config/puma.rb that are not an option here. Lines that need no effect are accepted with a note; other
    # lines are refused with what to use instead.
    module PumaLines
      # Line => why it needs no effect.
      ACCEPTED = {
        silence_single_worker_warning: "there is no such warning",
        silence_fork_callback_warning: "there is no such warning",
        nakayoshi_fork: "memory is always settled before workers are forked",
        wait_for_less_busy_worker: "a busy worker always leaves new connections to a less busy one",
        prune_bundler: "a phased restart loads the new code and the new bundle in a fresh process",
        extra_runtime_dependencies: "a phased restart loads the new bundle in a fresh process",
        drain_on_shutdown: "connections are always drained before the server exits",
        shutdown_debug: "work that did not finish in time is always logged with its backtrace",
        worker_check_interval: "workers are pinged four times in each alive_timeout_s",
        worker_culling_strategy: "the newest worker goes first",
        io_selector_backend: "sockets are watched outside of Ruby",
        max_fast_inline: "keep-alive costs other clients nothing",
        max_keep_alive: "keep-alive costs other clients nothing",
        max_io_threads: "waiting threads do not count against others: the pool grows by itself up to threads MAX",
        mutate_stdout_and_stderr_to_sync_on_write: "the server's own output is never buffered",
        raise_exception_on_sigterm: "SIGTERM finishes running work and exits with status 0",
        bind_to_activated_sockets: "sockets of the service manager are used if a bind names their address",
        quiet: "log_level :warn logs warnings and errors only",
        debug: "log_level :debug logs more"
      }.freeze

      # Line => the value that needs no effect, and what to use instead of other values.
      ONLY = {
        queue_requests: [true, "requests are always read whole before a thread takes them; remove the line"],
        enable_keep_alives: [true, "set web { requests_per_connection_max 1 }"],
        allow_underscore_headers: [true, "let the proxy in front drop such headers; here one is dropped only if the " \
                                         "same name with dashes is there too, or if it would frame the body"],
        clean_thread_locals: [false, "a thread serves many requests; use ActiveSupport::CurrentAttributes or clear " \
                                     "the variables in a middleware"],
        fiber_per_request: [false, "requests run on threads; remove the line"],
        set_remote_address: [:socket, "name the proxies in front with web { trusted_proxies \"10.0.0.0/8\" }, or let " \
                                      "the balancer send the PROXY protocol: bind \"tcp://…?proxy_protocol=on\""],
        rack_url_scheme: ["http", "let the proxy in front send X-Forwarded-Proto, which Rack::Request#scheme reads"],
        set_default_host: ["0.0.0.0", "name the host in bind \"tcp://HOST:PORT\" or port PORT, \"HOST\""]
      }.freeze

      # Line => what to use instead.
      REFUSED = {
        activate_control_app: "remove it; `chaton status`, `stop` and `restart` use control_socket, which is on by " \
                              "default",
        state_path: "remove it; `chaton status` and `pidfile` have what its file contained",
        state_permission: "remove it; there is no state file",
        fork_worker: "remove it; workers are forked from a process that preloaded the application, and SIGUSR1 loads " \
                     "new code in a fresh one",
        on_refork: "workers are never forked from a worker; use before_fork",
        before_refork: "workers are never forked from a worker; use before_fork",
        on_worker_fork: "use before_fork, which runs once before the first, or on_worker_boot in each",
        before_worker_fork: "use before_fork, which runs once before the first, or on_worker_boot in each",
        after_worker_fork: "use on_worker_boot, which runs in the worker itself",
        after_worker_boot: "use on_worker_boot, which runs in the worker itself",
        after_worker_shutdown: "the supervisor logs how each worker ended; on_worker_shutdown runs in the worker",
        single: "write its lines without the block, or under an `if` on an environment variable",
        cluster: "write its lines without the block, or under an `if` on an environment variable",
        after_refork: "workers are never forked from a worker; use on_worker_boot",
        on_thread_start: "threads come and go with the load; open what a thread needs on first use, with Thread#[]",
        on_thread_exit: "threads come and go with the load; let the application close what it opened",
        before_thread_start: "threads come and go with the load; open what a thread needs on first use",
        before_thread_exit: "threads come and go with the load; let the application close what it opened",
        out_of_band: "remove it; garbage collection between requests needs no hook",
        idle_timeout: "the server does not exit when it is idle; for idle connections set web { idle_timeout_s }",
        restart_command: "remove it; a restart repeats the command the server was started with",
        log_formatter: "use log_format :json and format the lines where they are collected",
        app: "define the application in config.ru, or name its file with rackup",
        supported_http_methods: "every method reaches the application; refuse methods there",
        custom_logger: "the server logs to standard output; use stdout_redirect or log_format :json"
      }.freeze

      # The file that `plugin :tmp_restart` and `bin/rails restart` mean.
      RESTART_FILE = "tmp/restart.txt"
      # Plugins that run a command => its gem, and the command.
      SERVICE_PLUGINS = {
        "solid_queue" => ["solid_queue", "bin/rails solid_queue:start"],
        "tailwindcss" => ["tailwindcss-rails", "bin/rails tailwindcss:watch"]
      }.freeze
      # Plugins whose line is accepted => why they need no effect.
      PLUGINS = {
        "systemd" => "readiness, reloads and the watchdog are reported to systemd without it"
      }.freeze
      # For all other plugins.
      NO_PLUGIN = "plugins depend on Puma itself; remove it, and run its command with service \"NAME\", \"COMMAND\""
    end
  end
end
