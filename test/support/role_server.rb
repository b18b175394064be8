# frozen_string_literal: true

require_relative "console"
require_relative "server"

# The real `exe/chaton` running jobs or streams, with its classes in a scratch directory.
class RoleServer < Server
  # Restarts a dead worker at once.
  QUICK = "constants_for_tests restart_delay_s: 0.05, restart_delay_max_s: 0.05"
  # Two failures end it.
  FAILING = "constants_for_tests restart_delay_s: 0.05, restart_delay_max_s: 0.1, crash_loop_count: 2"

  # Waits until every worker is ready.
  #
  # @return [self]
  def ready
    eventually("ready", timeout_s: WAIT_S * 2) do
      raise Late, "the server has ended; the log:\n#{log}" unless @waiter.alive?

      running?
    end
    self
  end

  # Kills all processes. The supervisor is stopped first, so that it restarts no worker meanwhile.
  def kill_all
    pids = workers
    signal("STOP")
    pids.each { |pid| signal("KILL", pid) }
    signal("KILL")
    wait_exit
    wait_all_gone
  end

  private

  def running?
    now = status
    return now["state"] == "running" unless now.key?("workers")

    now["state"] == "running" && now["workers"].any? && now["workers"].all? { |worker| worker["state"] == "ready" }
  rescue Chaton::Error, SystemCallError, JSON::ParserError
    false
  end
end
