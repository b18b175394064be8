# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs cancel JID
      class Cancel < Command
        def run
          jid, = positional("JID")
          client.cancel(jid)
          answer({ jid: jid }, "job #{jid} is asked to end; it ends when it checks cancelled?")
        end
      end
    end
  end
end
