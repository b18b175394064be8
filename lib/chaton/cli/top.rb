# frozen_string_literal: true

require_relative "stores_status"
require_relative "paint"
require_relative "server_command"
require_relative "status_report"

module Chaton
  class CLI
    # chaton top: shows what a running server is doing until it is ended; into a pipe, once.
    class Top < ServerCommand
      # Between two questions.
      INTERVAL_S = 2.0

      def run
        unless Paint.terminal?(@out)
          @out.puts StatusReport.new(status)
          return 0
        end
        %w[poll sample screen view].each { |name| require_relative "top/#{name}" }
        watch(Sample.new(status))
        0
      rescue Interrupt
        0
      rescue EOFError, Errno::EIO, Errno::EPIPE
        # The terminal has gone.
        1
      end

      private

      def status = StoresStatus.add(ask("status"), @arguments.given)

      # @param sample [Sample] the first one: without a server there is no screen
      def watch(sample)
        @rates = Rates.new
        @view = View.new(@rates, paint: Paint.for(@out))
        take(sample)
        screen = Screen.new(@out, ($stdin if $stdin.tty?))
        poll = Poll.new(INTERVAL_S, ask: method(:look), arrived: screen.method(:wake)).start
        screen.use { show(screen, poll) }
      ensure
        poll&.stop
      end

      def show(screen, poll)
        loop do
          take_reply(poll.reply)
          rows, columns = screen.size
          screen.draw(@view.lines(@sample, rows: rows, columns: columns, units: @units, trouble: @trouble))
          keys = screen.wait(INTERVAL_S)
          return if keys.any? { |key| @view.press(key) == :quit }

          poll.hurry if keys.include?(:enter)
        end
      end

      # On the thread of the {Poll}.
      def look
        opened = @view.opened
        [Sample.new(status), units(opened)]
      end

      def units(opened)
        (@asking ||= Units.new(control_socket)).of(opened.worker) if opened
      rescue ControlError => e
        e.message
      end

      def take_reply(reply)
        return if reply.nil? || reply.equal?(@taken)

        @taken = reply
        @trouble = reply.error
        return unless reply.value

        sample, @units = reply.value
        take(sample)
      end

      def take(sample)
        @rates.add(sample)
        @sample = sample
      end
    end
  end
end
