# frozen_string_literal: true

# SQLite has one writer at a time, and its own way to wait for it sleeps in C with Ruby's lock held: the thread that
# could finish its transaction then never runs. Any server with threads needs this until the application is on Rails
# 7.1, which does the same: wait in Ruby, where others can run. (The lock is a file's; there is no event to wait for.)
module SQLiteWait
  TRY_EVERY_S = 0.002
  TRIES_MAX = 2500

  def configure_connection
    super
    raw_connection.busy_handler do |tries|
      sleep TRY_EVERY_S
      tries < TRIES_MAX
    end
    # Readers do not wait for the writer.
    execute("PRAGMA journal_mode = WAL", "SCHEMA")
  end
end

ActiveSupport.on_load(:active_record_sqlite3adapter) { prepend SQLiteWait }
