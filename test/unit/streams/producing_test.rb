# frozen_string_literal: true

require_relative "support/streams_unit_case"
require_relative "support/fake_streams_client"

class StreamsProducingTest < StreamsUnitCase
  def setup
    super
    @native = FakeStreamsClient.new
    settings = Chaton::Config.load({ config_file: "-", broker: @native.address }, env: {}).streams
    Chaton::Streams.swap_client(Chaton::Streams::Client.new(@native, settings))
  end

  def teardown
    Chaton::Streams.use(nil)
    super
  end

  def test_a_value_is_written_as_it_is_or_as_json
    Chaton.produce(:events, "a")
    Chaton.produce("events", { a: [1, nil] }, key: :k, headers: { x: 1, "y" => [1, "2"], z: nil }, partition: 2,
                                              timestamp: Time.at(1, 500, :millisecond))
    Chaton.produce("events", [1], key: 7, timestamp: 12)
    Chaton.produce("events", nil, key: "k", headers: { "a" => "b" })
    assert_equal [["events", "a", nil, nil, nil, nil],
                  ["events", '{"a":[1,null]}', "k", { "x" => "1", "y" => %w[1 2], "z" => nil }, 2, 1500],
                  ["events", "[1]", "7", nil, nil, 12], ["events", nil, "k", { "a" => "b" }, nil, nil]], @native.rows
    assert_equal [:produce], @native.calls.uniq
  end

  def test_what_can_be_no_record_is_refused
    { ["e", 7] => /value must be a String/, ["e", "a", { key: 1.5 }] => /key must be a String/,
      ["e", "a", { headers: [] }] => /headers must be a Hash/,
      ["e", "a", { timestamp: 1.5 }] => /timestamp must be a Time, or mill/ }.each do |(topic, value, rest), text|
      assert_match text, assert_raises(ArgumentError) { Chaton.produce(topic, value, **(rest || {})) }.message
    end
    assert_empty @native.rows
  end

  def test_many_at_once
    Chaton.produce_many(:events, %w[a b])
    Chaton.produce_many("events", ["a", [1], nil, { value: { x: 1 }, key: 1, partition: 3 }])
    assert_equal %i[produce_values produce_many], @native.calls
    assert_equal [%w[events a], %w[events b], %w[events a], ["events", "[1]"], ["events", nil],
                  ["events", '{"x":1}', "1", nil, 3, nil]], @native.rows
    [{ x: 1 }, { value: "a", kay: 1 }].each do |wrong|
      error = assert_raises(ArgumentError) { Chaton.produce_many("events", ["a", wrong]) }
      assert_match(/write \{ value: … \} around a Hash that is a value/, error.message)
    end
  end

  def test_the_outbox_needs_jobs_in_postgresql
    Dir.mktmpdir do |dir|
      Chaton::Jobs.use(Chaton::Config.load({ config_file: "-", store: "sqlite://#{dir}/jobs.db" }, env: {}))
      error = assert_raises(Chaton::ConfigError) { Chaton.produce("events", "a", outbox: true) }
      assert_match(%r{they are in sqlite://.*: write jobs \{ store :active_record \}, or produce after the commit},
                   error.message)
    end
    assert_empty @native.rows
  ensure
    Chaton::Jobs.use(nil)
  end

  def test_waiting_for_the_disk
    assert_equal [["events", "a", nil, nil, nil, nil]], Chaton.produce!("events", "a").rows
    error = assert_raises(Chaton::StreamUnavailable) { Chaton.produce!("events", "late") }
    assert_match(%r{not durable after 120.0 s .*; is kafka://127.0.0.1:1 up\?}, error.message)
  end

  def test_the_end_of_a_process_waits_for_what_is_not_written
    assert_equal 2, Chaton::Streams.finish(log: log)
    assert_match(/WARN .*not written in time.*count=2/, logged)
    Chaton::Streams.swap_client(nil)
    assert_equal 0, Chaton::Streams.finish
  end

  def test_nothing_is_configured
    Chaton::Streams.use(Chaton::Config.load({ config_file: "-" }, env: {}, root: Dir.tmpdir))
    error = assert_raises(Chaton::ConfigError) { Chaton.produce("a", "b") }
    assert_match(%r{write `streams \{ broker "sqlite://storage/log.db" \}` into config/chaton.rb}, error.message)
  end

  def test_what_is_produced_before_the_fork_is_kept_for_one_worker
    assert_equal <<~TEXT, forked
      kept: false
      refused: nothing is written before workers are forked: the record is kept for the first worker.
      full: 3 records wait for the first worker already
      workers: 4 records, ["a", "b", "c", "again"]
    TEXT
  end

  def test_a_worker_that_produces_does_not_wait_for_the_start
    assert_equal "3\n", in_process(<<~RUBY)
      #{preamble}
      Chaton.produce("e", "a")
      Chaton.produce("e", "b")
      pid = fork do
        Chaton.produce("e", "c")
        puts NATIVE.rows.size
      end
      Process.wait(pid)
    RUBY
  end

  def test_the_end_of_a_process_waits_as_long_as_records_go
    printed = flush_at_exit(left: [900, 400, 0])
    assert_equal [3, ""], [@native.calls.size, printed]
  end

  def test_lost_records_are_reported_at_the_end
    printed = flush_at_exit(left: [900, 900])
    assert_equal 2, @native.calls.size
    assert_match(/\Achaton: 900 records were not written .* lost: kafka:.* Chaton.produce! returns when/, printed)
  end

  def test_a_worker_that_stopped_has_waited_already
    Chaton::Streams.finish
    assert_equal ["", [:flush]], [flush_at_exit(left: [2]), @native.calls]
  end

  private

  def flush_at_exit(left:)
    @native.left = left
    printed = StringIO.new
    Chaton::Streams.client.flush_at_exit(err: printed)
    printed.string
  end

  def forked
    in_process(<<~RUBY)
      #{preamble}
      value = +"a"
      receipt = Chaton.produce("e", value, key: "k")
      value << "changed"
      puts "kept: \#{receipt.wait(1)}"
      Chaton.produce_many("e", %w[b c])
      begin
        Chaton.produce!("e", "d")
      rescue Chaton::StreamError => e
        puts "refused: \#{e.message.sub(/ Use.*/, "")}" if e.message.include?("before workers")
        puts "full: \#{e.message[/.*already/]}" if e.is_a?(Chaton::BufferFull)
      end
      begin
        Chaton::Streams.client.wait(nil)
      rescue Chaton::StreamUnavailable => e
        puts "refused: \#{e.message.sub(/ Use.*/, "")}"
      end
      reader, writer = IO.pipe
      pids = Array.new(3) do
        fork do
          2.times { Chaton::Streams.started }
          NATIVE.rows.each { |row| writer.puts(row[1]) }
        end
      end
      pids.each { |pid| Process.wait(pid) }
      pid = fork { Chaton::Streams.started; Chaton.produce("e", "again"); NATIVE.rows.each { |row| writer.puts(row[1]) } }
      Process.wait(pid)
      writer.close
      lines = reader.read.split
      puts "workers: \#{lines.size} records, \#{lines}"
    RUBY
      .lines.sort_by { |line| %w[kept refused full workers].index(line[/\w+/]) }.join
  end

  def preamble
    <<~RUBY
      require "chaton"
      require "chaton/config"
      require #{File.expand_path("support/fake_streams_client", __dir__).inspect}
      $stdout.sync = true
      NATIVE = FakeStreamsClient.new
      Chaton::Streams::Client.define_singleton_method(:for) { |settings| new(NATIVE, settings) }
      File.write("/tmp/chaton-#{Process.pid}.rb", "constants_for_tests produce_buffer_records: 3\nstreams { }")
      plan = Chaton::Config.load({ config_file: "/tmp/chaton-#{Process.pid}.rb" }, env: {}, root: "/tmp")
      File.unlink("/tmp/chaton-#{Process.pid}.rb")
      Chaton::Streams.use(plan, forks: true)
    RUBY
  end
end
