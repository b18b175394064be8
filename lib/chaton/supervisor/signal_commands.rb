# frozen_string_literal: true

module Chaton
  class Supervisor
    # Maps each signal to a command, which is a method of the controller. It returns nil when it has begun, or a
    # sentence that says why it has not.
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

      # The terminal's Ctrl-C: the first one stops, the second one stops at once.
      def interrupt = over? ? stop_now : stop

      # Reopens redirected output, and has certificates read again. Without either, and of a server on a terminal, the
      # signal means that the terminal was closed.
      def hang_up
        reopened = @resources.reopen_output
        reopened || (@plan.tls? && !@log.terminal?) ? forward_hang_up : stop
      end

      private

      def forward_hang_up; end
    end
  end
end
