# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs migrate: makes the tables of a store in PostgreSQL, or brings them up to date. A server that has the
      # right to make them does so by itself.
      class Migrate < Command
        def run
          version = client.migrate
          answer({ version: version }, "#{client.address}: the tables have version #{version}")
        end
      end
    end
  end
end
