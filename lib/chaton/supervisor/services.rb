# frozen_string_literal: true

require "io/nonblock"
require_relative "event_loop"
require_relative "service_process"

module Chaton
  class Supervisor
    # The processes of the `service` lines. A source of the event loop.
    class Services
      # Pause between two checks for the end of a process, in a server that gets no SIGCHLD.
      REAP_EVERY_S = 1.0

      # @param reaps [Boolean] whether to wait for the processes here; else {#ended} is called
      def initialize(plan, launch_command:, reaps:, log:)
        @processes = plan.services.map do |line|
          ServiceProcess.new(line, plan, environment: launch_command.environment_beside,
                                         open_files: launch_command.open_files, log: log)
        end
        @reaps = reaps
        @open = false
      end

      # Begins to start them.
      def open
        return if @processes.empty?

        # Programs that watch files end when their standard input does. Nothing is written to it.
        @input, @keep = IO.pipe
        # Ruby's pipes do not block, which other programs do not expect.
        @input.nonblock = false
        @reap_at = EventLoop.now_s if @reaps
        @open = true
      end

      def alive? = @processes.any?(&:alive?)

      def ios = @processes.flat_map(&:ios)

      def readable(io)
        @processes.find { |process| process.ios.include?(io) }&.readable(EventLoop.now_s)
        @reap_at &&= EventLoop.now_s if io.closed?
      end

      def due_at = (@processes.map(&:due_at).push(@reap_at).compact.min if @open)

      def tick(now_s)
        return unless @open

        reap(now_s) if @reap_at && now_s >= @reap_at
        @processes.each { |process| process.tick(now_s, @input) }
      end

      # @return [Array<Integer>] of the processes that exist
      def pids = @processes.map(&:pid).compact

      # @return [Boolean] whether it was the process of a service
      def ended(pid, how)
        process = @processes.find { |one| one.pid == pid }
        process&.ended(how, EventLoop.now_s)
        !process.nil?
      end

      # Ends each, so that it is started again with the code on disk.
      def restart = @processes.each { |process| process.restart(EventLoop.now_s) }

      # @param at_once [Boolean] without letting them finish
      def stop(at_once: false)
        @processes.each { |process| process.stop(EventLoop.now_s) }
        kill if at_once
      end

      def kill = @processes.each(&:kill)

      def status
        now_s = EventLoop.now_s
        @processes.empty? ? {} : { services: @processes.map { |process| process.status(now_s) } }
      end

      # Closes the main process's descriptors in a forked child.
      def close_in_child = [*ios, @input, @keep].compact.each(&:close)

      private

      def reap(now_s)
        @reap_at = now_s + REAP_EVERY_S
        pids.each do |pid|
          found, status = Process.wait2(pid, Process::WNOHANG)
          ended(pid, WorkerReport.describe(status)) if found
        rescue Errno::ECHILD
          ended(pid, "unknown: the application has waited for it")
        end
      end
    end
  end
end
