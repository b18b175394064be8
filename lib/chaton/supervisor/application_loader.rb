# frozen_string_literal: true

require_relative "../memory/eden"
require_relative "../memory/settle"
require_relative "../workload/code"

module Chaton
  class Supervisor
    # Loads the application once, before workers are forked from it.
    class ApplicationLoader
      def initialize(plan, log:)
        @plan = plan
        @log = log
      end

      # @return [#call, nil] the application; nil where no worker serves web requests
      # @raise [AppLoadError] naming the file
      def load
        app = Workload::Code.load(@plan, @plan.roles_by_worker.flatten.uniq, log: @log, forks: true)
        Memory::Settle.new(@plan, log: @log).call
        # Once, where the workers would each do it.
        Memory::Eden.new(@plan, log: @log).grow
        warn_of_threads
        app
      end

      # Threads that a library starts again after a fork: the reaper of ActiveRecord's connection pool.
      RESTARTED = /\AAR Pool Reaper/

      private

      # A thread does not survive fork, but a lock that it holds stays locked.
      def warn_of_threads
        threads = (Thread.list - [Thread.main]).reject { |thread| RESTARTED.match?(thread.name.to_s) }
        return if threads.empty?

        names = threads.map { |thread| thread.name || thread.inspect[%r{/\S+:\d+}] || thread.inspect }
        @log.warn("loading the application left threads running, which will not exist in the workers; " \
                  "start them in on_worker_boot", threads: names.join(", "))
      end
    end
  end
end
