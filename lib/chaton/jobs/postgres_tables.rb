# frozen_string_literal: true

require_relative "../native"

module Chaton
  module Jobs
    # The tables of the store in PostgreSQL, for a migration of the application. Without one, the first process that may
    # make them does so.
    module PostgresTables
      class << self
        # @return [Integer] that this release has
        def version = steps.size

        # Makes them, or brings them up to date, as `chaton jobs migrate` does.
        # @param connection [ActiveRecord::ConnectionAdapters::AbstractAdapter] in a transaction
        def migrate(connection)
          connection.execute(Native::JobsClient.postgres_schema.first)
          made = connection.select_value("SELECT max(number) FROM chaton.version").to_i
          steps.drop(made).each { |step| connection.execute(step) }
          connection.execute("UPDATE chaton.version SET number=#{version} WHERE number<#{version}")
        end

        private

        def steps = Native::JobsClient.postgres_schema.drop(1)
      end
    end
  end
end
