# frozen_string_literal: true

module Chaton
  # Waits for a locked SQLite database without the GVL.
  #
  # Before Rails 8, the `timeout:` of `config/database.yml` is SQLite's own busy timeout, which sleeps with the GVL
  # held. When the lock's owner is another thread of this process, it cannot run to release the lock, and the write
  # fails with `SQLite3::BusyException` after the whole time-out. This handler sleeps in Ruby, as that of Rails 8 does.
  module SqliteBusyHandler
    # Time between two tries. Rails 8 takes the same.
    PAUSE_S = 0.001

    private

    def configure_connection
      super
      timeout = @config[:timeout] or return
      timeout_s = self.class.type_cast_config_to_integer(timeout) / 1000.0
      # The first name is that of Rails 7.1 and later.
      connection = @raw_connection || @connection
      deadline = nil
      connection.busy_handler do |tries|
        now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        deadline = now + timeout_s if tries.zero?
        next false if now >= deadline

        sleep(PAUSE_S)
        true
      end
    end
  end
end
