# frozen_string_literal: true

require "io/console"

module Chaton
  class CLI
    class Top < ServerCommand
      # The terminal while `chaton top` runs: its second screen, keys without Enter, changes of its size. Everything is
      # as before when it ends, by whatever: a key, a signal, an error, a stop with Ctrl-Z, or a terminal that has gone.
      class Screen
        # The second screen without a cursor.
        OPEN = "\e[?1049h\e[?25l"
        CLOSE = "\e[?25h\e[?1049l"
        # Terminals that know it show the whole frame at once; others ignore it.
        BEGIN_FRAME = "\e[?2026h\e[H"
        END_FRAME = "\e[J\e[?2026l"
        # What the keys send that are more than a character.
        KEYS = { "\e[A" => :up, "\e[B" => :down, "\eOA" => :up, "\eOB" => :down, "\r" => :enter, "\n" => :enter,
                 "\e" => :escape }.freeze
        KEY = /\e(?:\[[\d;]*[A-Za-z~]|O[A-Z])|./m
        # A terminal that does not tell its size.
        SIZE = [24, 80].freeze

        # @param input [IO, nil] a terminal; nil without keys
        def initialize(output, input)
          @output = output
          @input = input
          @changes, @changed = IO.pipe
        end

        # Opens it for the block.
        def use
          handlers = %w[WINCH TSTP CONT].to_h { |name| [name, trap(name) { note(name) }] }
          open
          yield
        ensure
          close
          handlers&.each { |name, handler| trap(name, handler || "DEFAULT") }
        end

        # Wakes {#wait}; from any thread.
        def wake = note("wake")

        # @return [Array<Symbol, String>] keys that were pressed; empty when something else happened, or after the time
        # @raise [EOFError, Errno::EIO] when the terminal has gone
        def wait(timeout_s)
          ready, = IO.select([@changes, @input].compact, nil, nil, timeout_s)
          suspend if ready&.include?(@changes) && take_changes.include?("T")
          ready&.include?(@input) ? @input.readpartial(1024).scan(KEY).map { |key| KEYS.fetch(key, key) } : []
        end

        # @return [Array<Integer>] rows and columns
        def size
          rows, columns = @output.winsize
          rows.positive? && columns.positive? ? [rows, columns] : SIZE
        rescue SystemCallError
          SIZE
        end

        # Draws over the former frame, without clearing it first: nothing flickers.
        #
        # @param lines [Array<String>] no longer than the screen is wide, and no more than it has rows
        def draw(lines)
          @output.write("#{BEGIN_FRAME}#{lines.join("\e[K\r\n")}\e[K#{END_FRAME}")
          @output.flush
        end

        private

        def open
          @mode = @input&.console_mode
          # Ctrl-C and Ctrl-Z still send their signals.
          @input&.raw!(intr: true)
          @output.write(OPEN)
          @output.flush
        end

        def close
          @output.write(CLOSE)
          @output.flush
        rescue SystemCallError, IOError
          # The terminal has gone.
          nil
        ensure
          restore_mode
        end

        def restore_mode
          @input.console_mode = @mode if @mode
        rescue SystemCallError, IOError
          nil
        end

        # Ctrl-Z: the shell gets its own screen until `fg`.
        def suspend
          close
          Process.kill("STOP", Process.pid)
          open
        end

        # Signal handlers may not wait: a full pipe wakes as well.
        def note(name)
          @changed.write_nonblock(name[0], exception: false)
        rescue IOError
          nil
        end

        def take_changes = @changes.read_nonblock(1024, exception: false).to_s
      end
    end
  end
end
