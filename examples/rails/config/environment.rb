# frozen_string_literal: true

require_relative "application"

Rails.application.initialize!

# The example has no deployment step that creates the table.
unless ActiveRecord::Base.connection.table_exists?("messages")
  ActiveRecord::Schema.verbose = false
  load Rails.root.join("db/schema.rb")
end
