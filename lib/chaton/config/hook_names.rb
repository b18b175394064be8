# frozen_string_literal: true

module Chaton
  module Config
    # The moments at which blocks of the configuration run.
    module HookNames
      # One moment: its name, Puma's other names for it, and one sentence.
      Hook = Struct.new(:name, :puma, :says)

      ALL = [
        Hook.new(:before_fork, [],
                 "Once, before the first worker is forked, in the process that forks: with preload the preloader, " \
                 "which has loaded the application, without it the main process."),
        Hook.new(:on_worker_boot, %i[before_worker_boot],
                 "In each worker, before it serves; gets the worker's index. Open connections and start threads here."),
        Hook.new(:warm_up, [],
                 "After the application is loaded, with preload in the preloader before `before_fork`, without it in " \
                 "each process with the role web; gets a client whose get(path), post(path) and " \
                 "request(method, path), all with headers: and body:, call the application in this process. A " \
                 "failure is logged only."),
        Hook.new(:on_worker_shutdown, %i[before_worker_shutdown],
                 "In each worker, after its last request; gets the worker's index."),
        Hook.new(:after_booted, %i[on_booted],
                 "In the main process, when the server is ready for the first time. With workers that process has no " \
                 "code of the application; require what the hook needs. An error is logged only."),
        Hook.new(:after_stopped, %i[on_stopped],
                 "In the main process, like after_booted, after a graceful stop. An error is logged only."),
        Hook.new(:on_restart, %i[before_restart],
                 "In the main process, like after_booted, before it starts the program again in place (SIGUSR2).")
      ].freeze

      # Answers a request whose application raised: a block of up to three arguments (error, env, status) that
      # returns a Rack response.
      ERROR_HANDLER = :lowlevel_error_handler
    end
  end
end
