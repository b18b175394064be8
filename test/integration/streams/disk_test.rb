# frozen_string_literal: true

require "test_helper"
require "support/cpu_time"
require "support/small_disk"
require "support/streams_test_case"

# The local log on a full disk, and with truncated, overwritten or foreign files.
class StreamsDiskTest < Minitest::Test
  include StreamsTest

  BYTES = 4_000
  # Produces until a write is refused, and returns the acknowledged records and the error.
  FILL = <<~RUBY.freeze
    stored = []
    begin
      loop { Chaton.produce!("TOPIC", "\#{stored.size}:" + "x" * #{BYTES}, partition: 0) && stored << stored.size }
    rescue Chaton::StreamError => e
      [stored.size, e.class.name, e.message]
    end
  RUBY

  def kind = :local

  def test_a_full_disk_loses_no_acknowledged_record
    SmallDisk.open(megabytes: 4) do |dir|
      @broker = "log://#{dir}/log"
      server = prepare_streams(topics: route(batch: 10))
      plain = console(server)
      count, kind, message = plain.run(FILL.sub("TOPIC", topic))
      assert_operator count, :>, 100
      assert_equal "Chaton::BufferFull", kind
      assert_match(/#{dir}.*(?:space|full)|(?:space|full).*#{dir}/i, message)
      assert_readable(count)
      # A worker on the full disk waits and logs it once. It consumes the acknowledged records as soon as there is room.
      server.start.ready
      CpuTime.window(server.workers.first, 2) { |share| assert_operator share, :<, CpuTime::REST * 3 }
      SmallDisk.resize(dir, megabytes: 8)
      server.eventually("all acknowledged records came") { seen.size >= count }
      assert_equal (0...count).to_a, seen.first(count)
      plain.run("Chaton.produce!(#{topic.dump}, 'again', partition: 0); nil")
      server.eventually("there is room") { evidence.values.include?("again") }
      assert_all_committed(server)
      assert_equal 0, server.stop
    end
  end

  # Undamaged batches are served, and the damaged one is logged by file and offset.
  def test_a_damaged_batch_is_skipped_and_logged
    server = written_to_one_file
    path = "#{scratch}/log/log.db"
    bytes = File.binread(path)
    at = bytes.index("x" * 900, bytes.size / 2)
    File.open(path, "r+b") do |file|
      file.seek(at)
      file.write("\xFF" * 50)
    end
    server.start.ready
    line = %r{(?:WARN|ERROR).*#{path}, batch \d+ \(#{topic}/0\): its checksum}
    server.eventually("it is logged") { server.log.match?(line) }
    server.eventually("the last record came") { evidence.values.include?("299") }
    numbers = evidence.values.map(&:to_i)
    assert_equal numbers.sort, numbers
    assert_operator numbers.uniq.size, :>, 200
    assert_operator numbers.uniq.size, :<, 300
    assert_writes_go_on(server)
  end

  # A power failure truncated SQLite's log in its last write: the records before it are kept, new ones follow them.
  def test_a_torn_write_is_left_out
    server = written
    path = "#{scratch}/log/log.db-wal"
    File.truncate(path, File.size(path) - 7)
    server.start.ready
    server.eventually("the records before it came") { evidence.count >= 290 }
    values = evidence.values
    assert_equal (0...values.size).map(&:to_s), values
    assert_operator values.size, :<, 300
    assert_writes_go_on(server)
  end

  def test_foreign_files_are_ignored
    server = written
    File.write("#{scratch}/log/README", "not of the log")
    FileUtils.mkdir_p("#{scratch}/log/lost+found")
    server.start.ready
    server.eventually("all came") { evidence.count == 300 }
    assert_equal (0...300).map(&:to_s), evidence.values
    assert_writes_go_on(server)
    assert_path_exists "#{scratch}/log/README"
  end

  # A file that is garbage is named and left alone, and jobs of the same worker run.
  def test_a_garbage_database_is_logged_and_harms_nothing_else
    server = written_to_one_file
    path = "#{scratch}/log/log.db"
    garbage = Random.bytes(File.size(path))
    File.binwrite(path, garbage)
    server.start
    server.eventually("it is logged") { server.log.match?(/(?:WARN|ERROR).*#{path}: it is damaged/) }
    CpuTime.window(server.workers.first, 2) { |share| assert_operator share, :<, CpuTime::REST * 3 }
    assert_equal 0, server.stop
    assert_equal garbage, File.binread(path)
  end

  private

  # Writes 300 records of one partition, about ten in a batch, by a process that is killed then.
  def written
    server = prepare_streams(topics: ["constants_for_tests log_partitions: 1", route(batch: 10)])
    writer = console(server)
    writer.run(<<~RUBY)
      fill = { "fill" => "x" * 1_000 }
      300.times do |n|
        Chaton.public_send(n % 10 == 9 ? :produce! : :produce, #{topic.dump}, n.to_s, key: "k", headers: fill)
      end
      nil
    RUBY
    writer.close
    server
  end

  # The same, all in one file.
  def written_to_one_file
    written.tap { change_log("PRAGMA wal_checkpoint(TRUNCATE)") }
  end

  def assert_writes_go_on(server)
    console(server).run("Chaton.produce!(#{topic.dump}, 'new', partition: 0); nil")
    server.eventually("the new one came") { evidence.values.include?("new") }
    assert_all_committed(server)
    assert_equal 0, server.stop
  end

  # The numbers of the consumed records.
  def seen = evidence.values.filter_map { |value| value[/\A(\d+):/, 1]&.to_i }

  # Asserts that all acknowledged records can be read.
  def assert_readable(count)
    numbers = log.read(topic).map { |record| record[:value][/\A\d+/].to_i }
    assert_equal (0...count).to_a, numbers.first(count)
  end
end
