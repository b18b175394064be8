# frozen_string_literal: true

require "test_helper"
require "support/cpu_time"
require "support/server"

# An idle web server sleeps: no thread of it has a timer that could wait for an event instead.
class WebIdleTest < Minitest::Test
  include ServerTest

  WINDOW_S = 4

  def test_an_idle_process_is_not_woken
    server = boot(config: "threads 1..8\nconstants_for_tests thread_idle_s: 0.5")
    20.times { server.get }
    assert_asleep(server, [server.pid], 0)
  end

  # The supervisor reads the memory, and asks workers whether they are alive.
  def test_idle_workers_are_woken_by_a_heartbeat_only
    server = boot(config: "workers 2\nthreads 1..8\nconstants_for_tests thread_idle_s: 0.5")
    20.times { server.get }
    pids = [server.pid, *server.workers]
    assert_asleep(server, pids, WINDOW_S)
  end

  private

  # Asserts that no thread of the processes wakes up more than `most` times in a window.
  def assert_asleep(server, pids, most)
    server.eventually("no thread wakes up", timeout_s: 50) do
      before = sleeps(pids)
      sleep WINDOW_S
      @awake = sleeps(pids).to_h { |thread, count| [thread, count - before.fetch(thread, 0)] }
      @awake.values.max <= most
    end
    assert_operator @awake.values.max, :<=, most
  rescue Server::Late => e
    flunk "#{e.message.lines.first} Awake: #{@awake&.select { |_, count| count > most }}"
  end

  def sleeps(pids) = pids.map { |pid| CpuTime.sleeps(pid) }.reduce(:merge)
end
