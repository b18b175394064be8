# frozen_string_literal: true

require "test_helper"
require "support/cpu_time"
require "support/small_disk"
require "support/streams_test_case"

# The local log on a disk that is full, or whose files were cut, overwritten or are not its own.
class StreamsDiskTest < Minitest::Test
  include StreamsTest

  BYTES = 4_000
  # Produces until it is refused: which were acknowledged, and what was said.
  FILL = <<~RUBY.freeze
    stored = []
    begin
      loop { Chaton.produce!("TOPIC", "\#{stored.size}:" + "x" * #{BYTES}, partition: 0) && stored << stored.size }
    rescue Chaton::LogError => e
      [stored.size, e.class.name, e.message]
    end
  RUBY

  def kind = :local

  def test_a_full_disk
    SmallDisk.open(megabytes: 4) do |dir|
      @broker = "log://#{dir}/log"
      server = prepare_streams(topics: ["segment \"256K\"", route(batch: 10)])
      plain = console(server)
      count, kind, message = plain.run(FILL.sub("TOPIC", topic))
      assert_operator count, :>, 100
      assert_equal "Chaton::BufferFull", kind
      assert_match(/#{dir}.*(?:space|full)|(?:space|full).*#{dir}/i, message)
      assert_readable(count)
      # A worker beside it rests, and says it once; what was acknowledged is consumed as soon as there is room.
      server.start.ready
      CpuTime.window(server.workers.first, 2) { |share| assert_operator share, :<, CpuTime::REST * 3 }
      SmallDisk.resize(dir, megabytes: 8)
      server.eventually("all that was acknowledged came") { seen.size >= count }
      assert_equal (0...count).to_a, seen.first(count)
      plain.run("Chaton.produce!(#{topic.dump}, 'again', partition: 0); nil")
      server.eventually("there is room") { evidence.values.include?("again") }
      assert_all_committed(server)
      assert_equal 0, server.stop
    end
  end

  # What is whole is served, the rest is reported by file and offset.
  def test_overwritten_bytes
    server, files = written
    damage(files[1], 100) { "\xFF" * 50 }
    server.start.ready
    server.eventually("it is told") { server.log.match?(/(?:WARN|ERROR).*#{File.basename(files[1])}/) }
    assert_match(/#{File.basename(files[1])}.*\d+/, server.log)
    server.eventually("the last record came") { evidence.values.include?("299") }
    numbers = evidence.values.map(&:to_i)
    assert_equal numbers.sort, numbers
    assert_operator numbers.uniq.size, :>, 200
    assert_writes_go_on(server)
  end

  # A write that a power failure cut in the middle: what was before it is there, and what follows is appended to that.
  def test_a_torn_write
    server, files = written
    File.truncate(files.last, File.size(files.last) - 7)
    server.start.ready
    server.eventually("what is whole came") { evidence.count >= 290 }
    values = evidence.values
    assert_equal (0...values.size).map(&:to_s), values
    assert_writes_go_on(server)
  end

  def test_foreign_files
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

  # One whose first segment is garbage from its first byte harms no other partition.
  def test_a_partition_that_is_garbage
    server, files = written(partitions: 2)
    garbage = files.select { |file| file.include?(File.dirname(files.first)) }
    garbage.each { |file| File.binwrite(file, Random.bytes(File.size(file))) }
    log.write(topic, Array.new(50) { |n| ["new#{n}", nil, nil, 1] })
    server.start.ready
    server.eventually("the other one came") { evidence.values.include?("new49") }
    told = /(?:WARN|ERROR).*#{Regexp.escape(File.basename(garbage.first))}/
    server.eventually("it is told") { server.log.match?(told) }
    CpuTime.window(server.workers.first, 2) { |share| assert_operator share, :<, CpuTime::REST * 3 }
    assert_equal 0, server.stop
  end

  private

  # 300 records in several segments of each partition; the log is closed.
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

  # The numbers of what came.
  def seen = evidence.values.filter_map { |value| value[/\A(\d+):/, 1]&.to_i }

  # All that was acknowledged can be read.
  def assert_readable(count)
    numbers = log.read(topic).map { |record| record[:value][/\A\d+/].to_i }
    assert_equal (0...count).to_a, numbers.first(count)
  end
end
