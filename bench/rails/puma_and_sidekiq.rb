# frozen_string_literal: true

require_relative "stack"

module Bench
  module Rails
    # The installed Puma and Sidekiq, each deployed in the way that loses the least.
    class PumaAndSidekiq < Stack
      # What `rails new` gives Puma.
      WEB_THREADS = 3
      TITLES = /puma: cluster worker|puma|sidekiq/

      def self.label = "puma and sidekiq"
      # A phased restart needs workers that load the application by themselves; Puma 7 and later preload it by default.
      CONFIG = "preload_app! false\n"

      def self.command_line
        "puma -w 2 -t 3:3 -e production, with `#{CONFIG.chomp}`, and sidekiq -c #{JOB_THREADS} -e production"
      end

      def start
        start_jobs
        super
      end

      # Of both.
      def log = [super, File.read(File.join(@folder, "jobs.log"))].join("\n")

      # A phased restart of Puma; Sidekiq ends its jobs and is started again.
      def deploy
        booted = phases
        Process.kill(:USR1, pid)
        Process.kill(:TERM, @jobs)
        Process.wait(@jobs)
        start_jobs
        wait_until("the workers have the new code") { phases >= booted + @workers }
      end

      # What supervises it, such as systemd, starts another.
      def kill_jobs
        Process.kill(:KILL, @jobs)
        Process.wait(@jobs)
        start_jobs
      end

      def stop
        Process.kill(:TERM, @jobs)
        Process.wait(@jobs)
        super
      end

      private

      def trees = [tree, ProcTree.new(@jobs)]

      def command(rackup, port)
        File.write(config = File.join(@folder, "puma.rb"), CONFIG)
        ["ruby", "-S", "puma", "-C", config, "-b", address(port, "ssl"), "-e", "production", "-w", @workers.to_s,
         "-t", "#{WEB_THREADS}:#{WEB_THREADS}", rackup]
      end

      def start_jobs
        @jobs = Process.spawn(environment, "ruby", "-S", "sidekiq", "-c", JOB_THREADS.to_s, "-q", "default",
                              "-e", "production", "-r", File.join(__dir__, "work.rb"),
                              in: File::NULL, out: File.join(@folder, "jobs.log"), err: [:child, :out],
                              chdir: @folder, pgroup: true)
      end

      # Puma writes this line for each worker that has booted.
      def phases = log.scan(/Worker \d+ .*booted/).size
    end
  end
end
