# frozen_string_literal: true

require "test_helper"
require "support/cpu_time"
require "support/jobs_test_case"

# Idle workers sleep, and wake up at once for a job.
class JobsIdleTest < Minitest::Test
  include JobsTest

  JOBS = NOTE
  WINDOW_S = 2
  # Most wake-ups of one thread in the window, which a heartbeat causes.
  WAKE_UPS_MAX = 10

  every_store def test_idle_threads_sleep
    server = boot_jobs(JOBS)
    console = console(server)
    console.run("100.times { |n| Note.perform_async(n) }; Note.perform_in(3600, \"far\")")
    server.eventually("they ran") { server.record.count == 100 }
    pid = server.workers.first
    server.eventually("it is idle", timeout_s: 20) do
      before = CpuTime.sleeps(pid)
      used_s = CpuTime.of(pid)
      sleep WINDOW_S
      @awake = CpuTime.sleeps(pid).to_h { |thread, count| [thread, count - before.fetch(thread, 0)] }
      @used_s = CpuTime.of(pid) - used_s
      @awake.values.max <= WAKE_UPS_MAX && @used_s < WINDOW_S * CpuTime::REST
    end
    assert_operator @awake.values.max, :<=, WAKE_UPS_MAX, @awake.inspect
    assert_operator @used_s, :<, WINDOW_S * CpuTime::REST
    console.run("Note.perform_async(\"awake\")")
    server.eventually("it wakes") { server.record.of("awake").any? }
    assert_equal 0, server.stop
  end

  every_store def test_each_push_wakes_an_idle_worker_at_once
    server = boot_jobs(JOBS)
    console = console(server)
    late = Array.new(30) do |n|
      pushed_s = console.run("Note.perform_async(\"n#{n}\"); Process.clock_gettime(Process::CLOCK_MONOTONIC)")
      server.eventually("job #{n}") { server.record.of("n#{n}").any? }
      server.record.of("n#{n}").first.at_s - pushed_s
    end
    # This checks that no push waits for a timer. The median is compared, because the machine has other load.
    assert_operator late.sort[late.size / 2], :<, 0.1, late.inspect
    assert_equal 0, server.stop
  end
end
