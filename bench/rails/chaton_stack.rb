# frozen_string_literal: true

require_relative "stack"

module Bench
  module Rails
    # Chaton from this checkout: one tree with two workers for web and one for jobs.
    class ChatonStack < Stack
      COMMAND = ["ruby", "-I#{ROOT}/lib", "#{ROOT}/exe/chaton"].freeze
      TITLES = /supervisor|preloader|worker \d+ \w+/

      def self.label = "chaton"
      def self.command_line = "chaton config.ru -e production, with `workers web: 2, jobs: 1`"
      def chaton? = true

      def deploy
        done = system(*COMMAND, "restart", "--wait", chdir: @folder, out: File::NULL)
        raise "the restart was given up:\n#{log}" unless done
      end

      # Its supervisor starts another.
      def kill_jobs = Process.kill(:KILL, worker_of("jobs"))

      private

      def command(rackup, port)
        config = File.join(@folder, "chaton.rb")
        File.write(config, <<~RUBY)
          workers web: 2, jobs: 1
          jobs { store ENV.fetch("REDIS_URL"); threads #{JOB_THREADS} }
        RUBY
        [*COMMAND, rackup, "-C", config, "-b", address(port, "https"), "-e", "production"]
      end

      def worker_of(role) = tree.pids.find { |pid| title(pid).include?(role) }
    end
  end
end
