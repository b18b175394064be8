# frozen_string_literal: true

module Chaton
  class Supervisor
    # Which order each signal gives. An order is a method of the helm; it
    # returns nil when it is carried out, or a sentence that says why not.
    module Orders
      BY_SIGNAL = {
        "TERM" => :stop, "INT" => :interrupt, "QUIT" => :stop_now, "USR1" => :phased_restart, "USR2" => :restart,
        "TTIN" => :grow, "TTOU" => :shrink, "HUP" => :hang_up
      }.freeze

      # Sidekiq's and Karafka's signal to fetch no more work; where none is fetched it stays the terminal's.
      INTAKE = { "TSTP" => :quiet_intake }.freeze

      # @param plan [Chaton::Config::Plan]
      # @return [Array<String>] signals that give an order
      def self.signals(plan)
        intake = %i[jobs streams].any? { |role| plan.role?(role) }
        [*BY_SIGNAL.keys, *(INTAKE.keys if intake)]
      end

      # Carries out a signal's order. An order that fails must not take the
      # server down with it.
      #
      # @param name [String] without "SIG"
      # @return [void]
      def obey(name)
        refusal = public_send(BY_SIGNAL[name] || INTAKE.fetch(name))
        @log.warn(refusal, signal: name) if refusal
      rescue StandardError => e
        @log.exception(e, "SIG#{name} could not be carried out")
      end

      # The terminal's Ctrl-C: once to finish and leave, twice to leave at once.
      #
      # @return [String, nil]
      def interrupt
        over? ? stop_now : stop
      end

      # Open redirected output again; without any, the terminal has been closed.
      #
      # @return [String, nil]
      def hang_up
        @surroundings.reopen_output ? pass_on_hang_up : stop
      end

      private

      def pass_on_hang_up; end
    end
  end
end
