# frozen_string_literal: true

require "test_helper"
require "support/cpu_time"
require "support/streams_test_case"

# Idle workers sleep, and wake up at once for a record.
class StreamsIdleTest < Minitest::Test
  include StreamsTest

  WINDOW_S = 2
  # Most wake-ups of one thread per second, which heartbeats cause. librdkafka's threads have timers of their own.
  WAKE_UPS_MAX = { local: 5, kafka: 25 }.freeze

  each_log def test_idle_threads_sleep
    create
    server = boot_streams
    log.write(topic, Array.new(100) { |n| [n.to_s] })
    assert_all_committed(server)
    pid = server.workers.first
    server.eventually("it is idle", timeout_s: 20) do
      before = CpuTime.sleeps(pid)
      CpuTime.window(pid, WINDOW_S) { |share| @share = share }
      @awake = CpuTime.sleeps(pid).to_h { |thread, count| [thread, (count - before.fetch(thread, 0)) / WINDOW_S] }
      @awake.values.max <= WAKE_UPS_MAX[kind] && @share < CpuTime::REST
    rescue Server::Late
      flunk "it is not idle: #{@share} of a core, #{@awake}"
    end
    assert_operator @awake.values.max, :<=, WAKE_UPS_MAX[kind], @awake.inspect
    log.write(topic, [["awake"]])
    server.eventually("it wakes") { evidence.values.include?("awake") }
    assert_equal 0, server.stop
  end

  each_log def test_each_record_wakes_an_idle_worker_at_once
    create
    server = boot_streams
    log.write(topic, [["first"]])
    server.eventually("it consumes") { evidence.count == 1 }
    late = Array.new(30) do |n|
      log.write(topic, [["n#{n}"]])
      sent_s = Evidence.now_s
      server.eventually("record #{n}") { evidence.count == n + 2 }
      evidence.all.find { |entry| entry.value == "n#{n}" }.at_s - sent_s
    end
    # This checks that no record waits for a timer. The median is compared, because the machine has other load.
    assert_operator late.sort[late.size / 2], :<, 0.1, late.inspect
    assert_equal 0, server.stop
  end
end
