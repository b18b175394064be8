# frozen_string_literal: true

require "rails/generators/base"
require "rails/generators/active_record"

module Chaton
  # `rails g chaton:postgres`: a migration that makes the tables of jobs in PostgreSQL, or brings them up to date, for
  # databases in which only migrations may do so.
  class PostgresGenerator < ::Rails::Generators::Base
    include ActiveRecord::Generators::Migration

    source_root File.expand_path("templates", __dir__)

    desc "Makes a migration for the tables of jobs in PostgreSQL"

    # @return [void]
    def migration
      migration_template "migration.rb", "db/migrate/migrate_chaton_jobs_to_#{version}.rb", skip: true
    end

    private

    def version = Jobs::PostgresTables.version
  end
end
