# frozen_string_literal: true

module Chaton
  class Supervisor
    # The secret from which the keys of TLS session tickets are made. A full restart hands it to the program that it
    # starts, so that clients continue their sessions there. It goes through a pipe: the environment and the arguments
    # of a process are shown to others, and what was read from a pipe is gone.
    module TicketHandover
      # "PID DESCRIPTOR": valid only in the process with this pid, which an exec keeps.
      VARIABLE = "CHATON_TICKET_SECRET"
      # Its length.
      BYTES = 32

      class << self
        # @return [Array(IO, Hash{String=>String})] what the next program inherits: a descriptor (nil if none is free),
        #   and its environment
        def pass(scoreboard)
          # Rails sets an internal encoding, to which other pipes would convert the bytes.
          reader, writer = IO.pipe(binmode: true)
          writer.write(scoreboard.secret)
          writer.close
          [reader, { VARIABLE => "#{Process.pid} #{reader.fileno}" }]
        rescue SystemCallError
          # Clients begin new sessions.
          [nil, {}]
        end

        # Gives the scoreboard the secret of the program before, if there is one. Call before the first fork.
        #
        # @param env [ENV, Hash{String=>String}] loses the variable
        def take(scoreboard, env = ENV)
          pid, descriptor = env.delete(VARIABLE).to_s.split.map(&:to_i)
          return unless pid == Process.pid && descriptor

          secret = IO.open(descriptor, "rb") { |reader| reader.read_nonblock(BYTES, exception: false) }
          scoreboard.secret = secret if secret.is_a?(String) && secret.bytesize == BYTES
        rescue SystemCallError, IOError
          # A new secret does, too: clients begin new sessions.
          nil
        end
      end
    end
  end
end
