# frozen_string_literal: true

# SQLite has one writer at a time. Its own busy timeout sleeps in C and holds Ruby's lock, so that the thread with the
# open transaction cannot finish it. Therefore this waits in Ruby, where other threads can run, as Rails 7.1 does.
# Every threaded server needs it with older versions. (It polls, because a file lock has no event.)
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
