# frozen_string_literal: true

require_relative "clearing"

module Chaton
  class CLI
    module Jobs
      # chaton jobs delete JID | --all PLACE
      class Delete < Clearing
        def self.switches = [*super, "--all"]

        def run
          return empty(place(positional("PLACE").first)) if @arguments.switch?("--all")

          record = found(positional("JID").first)
          acted(record, record.delete, "is deleted from #{record.place}")
        end
      end
    end
  end
end
