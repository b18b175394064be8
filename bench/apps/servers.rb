# frozen_string_literal: true

require_relative "../peers/chaton"
require_relative "../peers/puma"

module Bench
  module Apps
    # A server with a real application, in the application's bundle and on a copy of its data.
    module Application
      # Longest wait for a deploy.
      DEPLOY_LIMIT_S = 120

      # @param app [App]
      # @param kept [Boolean] whether it goes on after a case until {#close}: it boots for many seconds
      def initialize(app, kept: false, **given)
        super(**given)
        @app = app
        @kept = kept
      end

      attr_reader :app

      def start(*)
        return self if pid
        @variables = @app.environment(self.class::GEM)
        super(@app.rackup, folder: File.dirname(@app.rackup), probe: @app.probe)
      end

      def request_headers = @app.request_headers

      def stop = @kept ? nil : close
      def close = Server.instance_method(:stop).bind_call(self)

      # @return [Array<Integer>] process ids of the workers
      def worker_pids = tree.pids.select { |one| File.read("/proc/#{one}/cmdline").match?(self.class::WORKER) }

      # Replaces all workers while requests go on.
      def deploy
        before = booted
        deploy_now
        wait_until("all workers are new") { booted >= before + @workers }
      end

      # Kills one, and waits until another one has come in its place.
      def kill_worker
        before = booted
        Process.kill(:KILL, worker_pids.first)
        wait_until("another worker is there") { booted > before }
      end

      private

      # Why a page fails is in no server's output.
      def wait_until_ready(*)
        super
      rescue RuntimeError => e
        raise "#{e.message}\nThe application wrote:\n#{@app.log_end}"
      end

      # Each server writes a line for each worker that has booted.
      def booted = log.scan(self.class::BOOTED).size
      def environment = { **super, **@variables.to_h }

      def wait_until(what)
        deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + DEPLOY_LIMIT_S
        until yield
          late = Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
          raise "#{label}: waited too long until #{what}:\n#{log}" if late
          sleep Server::PROBE_EVERY_S
        end
      end
    end

    # Chaton with its defaults, or warmed.
    class AppChaton < Chaton
      prepend Application
      GEM = "chaton"
      WORKER = /worker \d/
      BOOTED = /worker ready/
      # Bundler makes no command for a gem of a folder.
      PROGRAM = ["bundle", "exec", "ruby", "#{ROOT}/exe/chaton"].freeze
      WARMED = File.join(__dir__, "warmed.rb")

      # @param warmed [Boolean] whether the pages of the application are requested before workers are forked
      def initialize(warmed: false, **given)
        super(**given)
        @warmed = warmed
      end

      def name = @warmed ? "chaton warmed" : super

      private

      def environment
        return super unless @warmed

        pages = @app.class::ROUTES.select { |route| route.mode == "get" }.map(&:path)
        { **super, "WARM_UP_PATHS" => pages.join(" "), "WARM_UP_COOKIE" => @app.request_headers["Cookie"].to_s }
      end

      def command(rackup, port)
        [*PROGRAM, rackup, "-C", @warmed ? WARMED : "-", "--control-socket", socket, "-b", address(port, "https"),
         "-e", "production", "-w", @workers.to_s]
      end

      def socket = @log ? File.join(File.dirname(@log), "control.sock") : "SOCKET"

      def deploy_now
        done = system(environment, *PROGRAM, "restart", "--wait", "--control-socket", socket,
                      chdir: File.dirname(@app.rackup), out: File::NULL)
        raise "the restart was given up:\n#{log}" unless done
      end
    end

    # Puma, which replaces its workers one after another on USR1.
    class AppPuma < Puma
      prepend Application
      GEM = "puma"
      WORKER = /cluster worker/
      BOOTED = /Worker \d+ .*booted/
      PHASED = File.join(__dir__, "phased.rb")

      # @param phased [Boolean] whether it can replace its workers one after another
      def initialize(phased: false, **given)
        super(**given)
        @phased = phased
      end

      private

      def command(...)
        ["bundle", "exec", *super.drop(2)].map { |word| word == "-" && @phased ? PHASED : word }
      end

      def deploy_now = Process.kill(:USR1, pid)
    end
  end
end
