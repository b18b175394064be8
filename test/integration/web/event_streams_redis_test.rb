# frozen_string_literal: true

require "test_helper"
require "support/event_client"
require "support/redis_server"
require "support/server"

# Event streams of several machines, which have their messages in a Redis. Each server has a directory of its own, as on
# a machine of its own.
class EventStreamsRedisTest < Minitest::Test
  include ServerTest

  APP = <<~'RUBY'
    require "chaton"
    run(lambda do |env|
      name, data, key = env["QUERY_STRING"].split("&")
      said = case env["PATH_INFO"]
             when "/say" then Chaton.broadcast(name, data, key: key)
             when "/large" then Chaton.broadcast(name, data * 1_000_000)
             when "/many" then Integer(data).times { |at| Chaton.broadcast(name, at.to_s) }
             when "/end" then Chaton::EventStream.disconnect(name)
             when "/tell" then Chaton::EventStream.open(name) { |stream| stream << data }
             end
      next [200, {}, [said.inspect]] unless said.nil? && env["QUERY_STRING"].empty?

      File.write("asked", "#{env["PATH_INFO"]}\n", mode: "a")
      history = env["HTTP_X_HISTORY"] == "1"
      Chaton::EventStream.response(env, *env["PATH_INFO"].delete_prefix("/").split(","), history: history)
    rescue Chaton::Error => e
      [507, {}, ["#{e.class}: #{e.message}"]]
    end)
  RUBY

  def time_limit_s = 180

  def teardown
    super
    (@redises || []).each(&:close)
  end

  def test_messages_of_all_machines_come_in_one_order_and_clients_go_on_at_any_of_them
    redis = start_redis
    machines = [boot_with(redis, "workers 2"), boot_with(redis, "workers 0")]
    clients = machines.flat_map { |machine| Array.new(4) { EventClient.new(machine.port, "/a").connect } }
    said = machines.each_with_index.map do |machine, n|
      Thread.new { 100.times { |at| assert_equal "true", machine.get("/say?a&#{n}-#{at}").body } }
    end
    received = clients.map { |client| client.take(200) }
    said.each(&:join)
    assert_equal 1, received.uniq.size
    2.times { |n| assert_equal(Array.new(100) { |at| "#{n}-#{at}" }, received.first.grep(/\A#{n}-/)) }
    # One of the first machine comes back to the second one.
    clients.first.close
    machines.first.get("/say?a&missed")
    moved = EventClient.new(machines.last.port, "/a").tap { |client| client.last_id = clients.first.last_id }.connect
    assert_equal "missed", moved.next.data
    assert_equal 4, machines.last.read("asked").lines.size, "it did not ask the application"
    assert_equal %w[true false], Array.new(2) { |at| machines[at].get("/say?a&once&k").body }
    clients.drop(1).each { |client| assert_equal %w[missed once], client.take(2) }
    machines.first.get("/end?a")
    clients.drop(1).each { |client| assert_nil client.next }
    machines.each { |machine| assert_equal 0, machine.stop }
  end

  def test_a_text_is_read_whole_on_another_machine_and_nothing_is_kept_beyond_its_bounds
    redis = start_redis
    few = "workers 0\nconstants_for_tests history_messages: 100"
    machines = Array.new(2) { boot_with(redis, few, "history_s 1.5") }
    machines.first.get("/tell?text&hello")
    reader = EventClient.new(machines.last.port, "/text", headers: { "X-History" => "1" }).connect
    assert_equal %w[reset message end], (Array.new(3) { reader.next.type })
    machines.first.get("/say?b&1&key")
    machines.first.get("/many?a&1000")
    assert_operator redis.call("XLEN", "chaton:live:log"), :<=, 165
    assert_equal ["a"], redis.call("SMEMBERS", "chaton:live:names")
    assert_equal redis.call("XLEN", "chaton:live:log"), redis.call("XLEN", "chaton:live:of:a")
    assert_equal 0, redis.call("HLEN", "chaton:live:keys")
    machines.first.eventually("the old ones go with new ones") do
      machines.last.get("/say?a&new")
      redis.call("XRANGE", "chaton:live:log", "-", "+", "COUNT", 1)[0][1].last == "new"
    end
    gap = EventClient.new(machines.last.port, "/text").tap { |client| client.last_id = reader.last_id }.connect
    assert_equal "gap", gap.next.type
    machines.each { |machine| assert_equal 0, machine.stop }
  end

  def test_messages_of_a_megabyte_reach_fast_and_slow_clients_and_those_that_come_back
    redis = start_redis
    machines = [boot_with(redis, "workers 1"), boot_with(redis, "workers 0")]
    fast = machines.map { |machine| EventClient.new(machine.port, "/a").connect }
    slow = EventClient.new(machines.first.port, "/a", receive_bytes_max: 4096).connect
    gone = EventClient.new(machines.first.port, "/a").connect
    letters = [*"a".."p"]
    say_large(machines, letters.first(4), [*fast, gone])
    gone.close
    machines.first.signal("KILL", machines.first.workers.first)
    fast.first.connect_again
    say_large(machines, letters.drop(4), fast)
    assert_equal letters.drop(4), (gone.connect && Array.new(12) { letter_of(gone) })
    received = []
    until received == letters
      event = slow.next
      event ? received << event.data[0] : slow.connect_again
      assert_equal received, letters.first(received.size)
    end
    assert_equal letters.size, redis.call("XLEN", "chaton:live:log")
    assert_equal 4, machines.sum { |machine| machine.read("asked").lines.size }
    machines.each { |machine| assert_equal 0, machine.stop }
  end

  def test_while_redis_is_away_a_machine_delivers_by_itself_and_the_others_get_it_later
    redis = start_redis
    here, there = Array.new(2) { boot_with(redis, "workers 2") }
    mine, theirs = [here, there].map { |machine| Array.new(6) { EventClient.new(machine.port, "/a").connect } }
    here.get("/say?a&before")
    (mine + theirs).each { |client| assert_equal "before", client.next.data }
    ids = mine.map(&:last_id)
    redis.kill
    20.times { |at| assert_equal "true", here.get("/say?a&#{at}").body }
    away = Array.new(20, &:to_s)
    mine.each { |client| assert_equal away, client.take(20) }
    assert_equal ids, mine.map(&:last_id), "they have no place in the log yet"
    # One that comes while it is away waits for all of it; so does one that comes back.
    late = EventClient.new(here.port, "/a").connect
    mine.first.close
    mine.first.connect
    redis.start
    here.wait_line(/event streams can be read again/)
    assert_equal "true", here.get("/say?a&after").body
    (theirs + [mine.first]).each { |client| assert_equal [*away, "after"], client.take(21) }
    mine.drop(1).each { |client| assert_equal "after", client.next.data }
    assert_equal "after", late.take(21).last
    refute_match(/ERROR|panic/, here.log + there.log)
    [here, there].each { |machine| assert_equal 0, machine.stop }
  end

  def test_a_redis_that_has_lost_its_messages_is_a_gap
    redis = start_redis({ "appendonly" => "no" })
    machines = Array.new(2) { boot_with(redis, "workers 0") }
    clients = machines.map { |machine| EventClient.new(machine.port, "/a").connect }
    say_and_take(machines, clients, "one")
    redis.kill
    machines.each { |machine| machine.wait_line(/event streams cannot be read now: redis:/) }
    redis.start
    clients.each { |client| assert_equal "gap", client.next.type }
    say_and_take(machines, clients, "two")
    # All keys are removed while it runs.
    redis.call("FLUSHALL")
    clients.each { |client| assert_equal "gap", client.next.type }
    say_and_take(machines, clients, "three")
    machines.each { |machine| assert_equal 0, machine.stop }
  end

  # As with `appendfsync everysec`: a second is lost.
  def test_a_redis_that_has_lost_its_last_messages_is_a_gap_though_new_ones_came_first
    redis = start_redis({ "appendonly" => "no" })
    machine = boot_with(redis, "workers 0")
    client = EventClient.new(machine.port, "/a").connect
    machine.get("/many?a&10")
    client.take(10)
    redis.call("SAVE")
    machine.get("/many?a&10")
    client.take(10)
    machine.signal("STOP")
    redis.kill
    redis.start
    # Another machine is faster than the one that has seen what is lost.
    other = boot_with(redis, "workers 0")
    other.get("/many?a&15")
    machine.signal("CONT")
    assert_equal "gap", client.next.type
    other.get("/say?a&new")
    data = [client.next.data]
    data << client.next.data until data.last == "new"
    [machine, other].each { |one| assert_equal 0, one.stop }
  end

  def test_the_redis_of_jobs_has_the_messages_and_one_that_does_not_answer_holds_nobody_up
    redis = start_redis({}, password: "hush")
    config = "jobs { store \"redis://127.0.0.1:#{redis.port}/0\"; password \"hush\"; answer_timeout_s 1.0 }"
    machine = boot(rackup: APP, config: "workers 0\nshutdown_timeout_s 2\n#{config}")
    client = EventClient.new(machine.port, "/a").connect
    machine.get("/say?a&one")
    assert_equal "one", client.next.data
    assert_equal 1, redis.call("XLEN", "chaton:live:log")
    redis.pause
    took = now
    10.times { |at| assert_equal "true", machine.get("/say?a&#{at}").body }
    assert_operator now - took, :<, 8, "it was not asked for each message"
    assert_equal Array.new(10, &:to_s), client.take(10)
    took = now
    opened = Array.new(20) { EventClient.new(machine.port, "/a").connect.head.first }
    assert_equal [200], opened.uniq
    assert_operator now - took, :<, 8, "nor for each stream"
    redis.resume
    machine.wait_line(/event streams can be read again/)
    machine.get("/say?a&after")
    # It had got the first one and not said so.
    assert_equal "after", client.take(2).last
    assert_equal 0, machine.stop
  end

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def start_redis(options = {}, **rest)
    RedisServer.new(options, **rest).start.tap { |redis| (@redises ||= []) << redis }
  end

  def boot_with(redis, config, live = "")
    boot(rackup: APP, config: "#{config}\nshutdown_timeout_s 2\nlive { store \"#{redis.url}\"; #{live} }")
  end

  def say_large(machines, letters, clients)
    letters.each_with_index do |letter, at|
      assert_equal "true", machines[at % 2].get("/large?a&#{letter}").body
      clients.each { |client| assert_equal letter, letter_of(client) }
    end
  end

  # @return [String] that the next message repeats a million times
  def letter_of(client)
    data = client.next.data
    assert_equal data[0] * 1_000_000, data
    data[0]
  end

  def say_and_take(machines, clients, text)
    machines.each_with_index do |machine, at|
      machine.get("/say?a&#{text}#{at}")
      clients.each { |client| assert_equal "#{text}#{at}", client.next.data }
    end
  end
end
