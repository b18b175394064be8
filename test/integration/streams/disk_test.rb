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
    rescue Chaton::LogError => e
      [stored.size, e.class.name, e.message]
    end
  RUBY

  def kind = :local

  def test_a_full_disk_loses_no_acknowledged_record
    SmallDisk.open(megabytes: 4) do |dir|
      @broker = "log://#{dir}/log"
      server = prepare_streams(topics: ["segment \"256K\"", route(batch: 10)])
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

  # Undamaged records are served, and the damaged ones are logged by file and offset.
  def test_overwritten_bytes_are_skipped_and_logged
    server, files = written
    damage(files[1], 100) { "\xFF" * 50 }
    server.start.ready
    server.eventually("it is logged") { server.log.match?(/(?:WARN|ERROR).*#{File.basename(files[1])}/) }
    assert_match(/#{File.basename(files[1])}.*\d+/, server.log)
    server.eventually("the last record came") { evidence.values.include?("299") }
    numbers = evidence.values.map(&:to_i)
    assert_equal numbers.sort, numbers
    assert_operator numbers.uniq.size, :>, 200
    assert_writes_go_on(server)
  end

  # A power failure truncated the last write: the records before it are kept, and new records are appended to them.
  def test_a_torn_write_is_truncated
    server, files = written
    File.truncate(files.last, File.size(files.last) - 7)
    server.start.ready
    server.eventually("the undamaged records came") { evidence.count >= 290 }
    values = evidence.values
    assert_equal (0...values.size).map(&:to_s), values
    assert_writes_go_on(server)
  end

  def test_foreign_files_are_ignored
    server, files = written
    File.write(File.join(File.dirname(files.first), "notes.txt"), "not of the log")
    File.write(File.join(scratch, "log", "README"), "not of the log")
    FileUtils.mkdir_p(File.join(scratch, "log", "lost+found"))
    server.start.ready
    server.eventually("all came") { evidence.count == 300 }
    assert_equal (0...300).map(&:to_s), evidence.values
    assert_writes_go_on(server)
    assert_path_exists File.join(File.dirname(files.first), "notes.txt")
  end

  # A partition whose first segment is garbage does not harm other partitions.
  def test_a_garbage_partition_harms_no_other
    server, files = written(partitions: 2)
    garbage = files.select { |file| file.include?(File.dirname(files.first)) }
    garbage.each { |file| File.binwrite(file, Random.bytes(File.size(file))) }
    log.write(topic, Array.new(50) { |n| ["new#{n}", nil, nil, 1] })
    server.start.ready
    server.eventually("the other one came") { evidence.values.include?("new49") }
    warning = /(?:WARN|ERROR).*#{Regexp.escape(File.basename(garbage.first))}/
    server.eventually("it is logged") { server.log.match?(warning) }
    CpuTime.window(server.workers.first, 2) { |share| assert_operator share, :<, CpuTime::REST * 3 }
    assert_equal 0, server.stop
  end

  private

  # Writes 300 records into several segments of each partition, and closes the log.
  def written(partitions: 1)
    server = prepare_streams(topics: ["segment \"64K\"", route(batch: 10)])
    maker = StreamsLog.new(broker, segment_bytes: 64 << 10)
    maker.create(topic, partitions: partitions)
    partitions.times do |partition|
      maker.write(topic, Array.new(300) { |n| [n.to_s, "k", { "fill" => "x" * 1_000 }, partition] })
    end
    maker.close
    files = Dir.glob("#{scratch}/log/**/*").select { |path| File.file?(path) && File.size(path) > 10_000 }
    files = files.select { |path| File.read(path, 2_000, mode: "rb").include?("x" * 500) }.sort
    assert_operator files.size, :>=, 4 * partitions
    [server, files]
  end

  def damage(path, place)
    File.open(path, "r+b") do |file|
      file.seek(place)
      file.write(yield)
    end
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
