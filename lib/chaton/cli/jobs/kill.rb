# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs kill JID
      class Kill < Command
        def run
          record = found(positional("JID").first)
          acted(record, record.kill, "is in the dead set now")
        end
      end
    end
  end
end
