# frozen_string_literal: true

module Chaton
  class Supervisor
    # Maps each signal to a command, which is a method of the controller. It returns nil when it has begun, or a
    # sentence that says why it has not. The commands here are those that a server with and without workers has in
    # common; `accepting?` and `end_work(at_once:)` are theirs.
    module SignalCommands
      BY_SIGNAL = {
        "TERM" => :stop, "INT" => :interrupt, "QUIT" => :stop_now, "USR1" => :phased_restart, "USR2" => :restart,
        "TTIN" => :grow, "TTOU" => :shrink, "HUP" => :hang_up
      }.freeze

      # Sidekiq's and Karafka's signal to fetch no more work. Without jobs and streams it keeps its default action.
      INTAKE = { "TSTP" => :quiet_intake }.freeze

      # @return [Array<String>] the signals with a command
      def self.signals(plan)
        intake = %i[jobs streams].any? { |role| plan.role?(role) }
        [*BY_SIGNAL.keys, *(INTAKE.keys if intake)]
      end

      # Carries out a signal's command. A command that fails must not end the server.
      #
      # @param name [String] without "SIG"
      def handle_signal(name)
        refusal = public_send(BY_SIGNAL[name] || INTAKE.fetch(name))
        @log.warn(refusal, signal: name) if refusal
      rescue StandardError => e
        @log.exception(e, "SIG#{name} could not be carried out")
      end

      # @return [Boolean] whether the server is stopping or restarting
      def over? = %i[stopping restarting].include?(@state)

      # Lets the running work finish, then exits.
      def stop
        @resources.notify.stopping
        @state = :stopping
        @resources.delayed_stop.request(method(:accepting?)) { wind_down(:stopping) }
        nil
      end

      # Lets the running work finish, then starts the program again in this process.
      def restart
        return "the server is already stopping" if over?

        hindrance = @resources.launch_command.hindrance
        return "the server goes on: the program cannot be started again, because #{hindrance}" if hindrance

        @resources.notify.reloading
        wind_down(:restarting)
      end

      # @return [Hash{Symbol=>Object}, String] see {AdminEndpoint#link}
      def dashboard = @resources.admin.link

      # The terminal's Ctrl-C: the first one stops, the second one stops at once.
      def interrupt = over? ? stop_now : stop

      # Reopens redirected output, and has certificates read again. Without either, and of a server on a terminal, the
      # signal means that the terminal was closed.
      def hang_up
        reopened = @resources.reopen_output
        reopened || (@plan.tls? && !@log.terminal?) ? forward_hang_up : stop
      end

      private

      def wind_down(state, at_once: false)
        @log.info(at_once ? "stopping at once" : "stopping when running work is finished")
        @state = state
        if state == :stopping
          @resources.delayed_stop.cancel
          @resources.listeners.close
        end
        end_work(at_once: at_once)
        @resources.services.stop(at_once: at_once)
        nil
      end

      def forward_hang_up; end
    end
  end
end
