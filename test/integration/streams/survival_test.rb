# frozen_string_literal: true

require "test_helper"
require "support/cpu_time"
require "support/small_disk"
require "support/streams_test_case"

# What the local log survives: kills of everything, a process that stops inside a write, damage in SQLite's own
# structure, a disk that cannot be written, a copy under load. Jobs have a file of their own and run meanwhile.
class StreamsSurvivalTest < Minitest::Test
  include StreamsTest

  CODE = <<~RUBY
    class Noted
      include Chaton::Job
      def perform(number) = Evidence.note("job", "jobs", 0, number)
    end

    class EventsConsumer < Chaton::Consumer
      def consume(batch) = batch.each { |record| Evidence.did(record, "one") }
    end

    class OtherConsumer < Chaton::Consumer
      def consume(batch) = batch.each { |record| Evidence.did(record, "two") }
    end
  RUBY
  # Writes for ever, some at once, and notes what is durable.
  PRODUCER = <<~'RUBY'
    require "chaton"
    topic, name, path = ARGV
    acknowledged = File.open(path, "a")
    (0..).each_slice(5) do |numbers|
      texts = numbers.map { |number| "#{name}:#{number}" }
      receipts = texts.map { |text| Chaton.produce(topic, text, key: name) }
      raise "not written" unless receipts.all? { |receipt| receipt.wait(60) && receipt.failed.zero? }

      acknowledged.syswrite(texts.map { |text| "#{text}\n" }.join)
    end
  RUBY
  PRODUCERS = 3
  KILLS = Soak.number(9, 200)
  # How long a process stops inside a write: longer than each wait for the lock but `delivery_timeout_s`.
  STOPPED_S = Soak.number(2, 60)
  JOBS = 20

  def kind = :local

  def time_limit_s = Soak.number(120, 1_500)

  # Every acknowledged record stands in the log once and in order, and each group has read all that stands there.
  def test_kills_of_producers_workers_and_the_supervisor
    create(partitions: 4)
    server = boot(workers: "streams: 2")
    producers = Array.new(PRODUCERS) { |number| start_producer(server, "p#{number}") }
    killed = Hash.new(0)
    KILLS.times do |round|
      sleep(rand * 0.3)
      victim = %i[producer worker supervisor][round % 3]
      killed[victim] += 1
      kill(victim, server, producers, "p#{PRODUCERS + round}")
    end
    producers.each { |pid| end_producer(pid) }
    written = assert_acknowledged_once_and_in_order
    assert_read_by_both(server, written)
    puts "#{killed} killed, #{written.size} records" if ENV["CHATON_SOAK"]
    assert_equal 0, server.stop
  end

  def test_a_process_that_stops_inside_a_write
    create(partitions: 4)
    server = boot(workers: "streams: 1, jobs: 1")
    writer = start_producer(server, "stopped")
    stop_inside_a_write(server, writer)
    client = console(server, requires: ["chaton", "./app/consumers/consumers"])
    client.run("$receipts = Array.new(50) { |n| Chaton.produce(#{topic.dump}, \"late:\#{n}\", key: \"k\") }; nil")
    assert_jobs_run(server)
    sleep STOPPED_S
    assert_equal [false, 0], client.run("[$receipts.any? { |one| one.wait(0) }, $receipts.sum(&:failed)]")
    server.signal("CONT", writer)
    assert client.run("$receipts.all? { |one| one.wait(30) } && $receipts.sum(&:failed).zero?")
    end_producer(writer)
    assert_read_by_both(server, assert_acknowledged_once_and_in_order)
    assert_equal 0, server.stop
  end

  def test_noise_in_sqlites_structure
    assert_stops_and_jobs_run do |path|
      root = query(path, "SELECT rootpage FROM sqlite_schema WHERE name='record_batches'").to_i
      File.open(path, "r+b") do |file|
        file.seek((root - 1) * query(path, "PRAGMA page_size").to_i)
        file.write(Random.bytes(8 << 10))
      end
    end
  end

  def test_a_cut_file
    assert_stops_and_jobs_run { |path| File.truncate(path, File.size(path) / 2) }
  end

  def test_a_disk_that_cannot_be_written
    SmallDisk.open(megabytes: 16) do |dir|
      @broker = "log://#{dir}/log"
      server = prepare
      write = ->(text) {
        console(server).tap { |one|
          one.run("Chaton.produce!(#{topic.dump}, #{text.dump}); nil")
        }.close
      }
      write.call("one:0")
      system("mount", "-o", "remount,ro", dir, exception: true)
      raised = assert_raises(Console::Raised) { write.call("refused") }
      assert_match(/#{dir}.*(?:written|Read-only)/, raised.message)
      system("mount", "-o", "remount,rw", dir, exception: true)
      write.call("one:1")
      server.start.ready
      assert_read_by_both(server, %w[one:0 one:1])
      assert_equal 0, server.stop
    end
  end

  def test_a_copy_under_load
    create(partitions: 4)
    server = boot(workers: "streams: 1")
    producer = start_producer(server, "p")
    copies = Array.new(3) do |number|
      server.eventually("more is written") { acknowledged.size > 500 * number }
      change_log("VACUUM INTO '#{scratch}/copy#{number}.db'")
      acknowledged.size
    end
    end_producer(producer)
    copies.size.times do |number|
      copy = StreamsLog.new("sqlite://#{scratch}/copy#{number}.db").tap { |one| @stores << one }
      assert_in_order(copy)
      ends = copy.partitions(topic).to_h { |part| [[topic, part["number"]], part["end"]] }
      assert(copy.committed(group).all? { |place, offset| offset <= ends[place] })
    end
    assert_read_by_both(server, assert_acknowledged_once_and_in_order)
    assert_equal 0, server.stop
  end

  private

  def prepare(**options)
    jobs = "jobs do\n store \"sqlite://#{scratch}/jobs.db\"\n load \"app/consumers\"\n queues \"default\"\nend"
    topics = [route, route(consumer: "OtherConsumer", group: "other")]
    prepare_streams(CODE, topics: topics, config: "#{StreamsServer::QUICK}\n#{jobs}", **options)
  end

  def boot(**options) = prepare(**options).start.ready

  # @return [Integer] its pid
  def start_producer(server, name)
    FileUtils.mkdir_p("#{scratch}/acknowledged")
    command = [RbConfig.ruby, "-I", Server::LIB, "-e", PRODUCER, topic, name, "#{scratch}/acknowledged/#{name}"]
    pid = Process.spawn(CompiledCache.variables, *command, chdir: server.dir)
    server.eventually("it writes") { File.size?("#{scratch}/acknowledged/#{name}") }
    pid
  end

  def end_producer(pid)
    Process.kill(:KILL, pid)
    Process.wait(pid)
  end

  def kill(victim, server, producers, name)
    case victim
    when :producer
      end_producer(producers.shift)
      producers << start_producer(server, name)
    when :worker then server.signal("KILL", server.eventually("a worker") { server.workers.sample })
    when :supervisor
      server.signal("KILL")
      server.wait_exit
      server.wait_all_gone
      server.start.ready
    end
  end

  # The lock's word is the thread that holds it.
  def stop_inside_a_write(server, pid)
    server.eventually("it is stopped with the lock") do
      sleep(rand * 0.01)
      server.signal("STOP", pid)
      server.eventually("no thread of it runs") { server.thread_states(pid).uniq == ["T"] }
      holder = File.binread("#{scratch}/log/log.db-lock", 4, 128).unpack1("L") & 0x3fffffff
      next true if File.exist?("/proc/#{pid}/task/#{holder}") && holder != 0

      server.signal("CONT", pid)
      false
    end
  end

  def assert_jobs_run(server)
    console(server, requires: ["chaton", "./app/consumers/consumers"])
      .run("#{JOBS}.times { |number| Noted.perform_async(number) }; nil")
    server.eventually("all jobs ran") { evidence.all("job").map(&:offset).uniq.size == JOBS }
  end

  # @yieldparam path [String] the file of records, which the block damages
  def assert_stops_and_jobs_run
    create(partitions: 1)
    log.write(topic, Array.new(3_000) { |number| ["one:#{number}", nil, { "fill" => "x" * 500 }] })
    log.close
    @stores = []
    path = "#{scratch}/log/log.db"
    change_log("PRAGMA wal_checkpoint(TRUNCATE)")
    yield path
    server = prepare(workers: "streams: 1, jobs: 1").start
    server.eventually("it is said") { server.log.match?(/(?:WARN|ERROR).*#{path}: it is damaged/) }
    assert_jobs_run(server)
    CpuTime.window(server.workers.first, 2) { |share| assert_operator share, :<, CpuTime::REST * 3 }
    assert_equal 0, server.stop
  end

  # In a process of its own: SQLite's locks belong to a process.
  def query(path, sql)
    program = "puts SQLite3::Database.new(ARGV[0], readonly: true).get_first_value(ARGV[1])"
    IO.popen([RbConfig.ruby, "-rsqlite3", "-e", program, path, sql], &:read)
  end

  def acknowledged
    Dir["#{scratch}/acknowledged/*"].flat_map { |path| File.read(path)[/\A.*\n/m].to_s.lines(chomp: true) }
  end

  # @return [Array<String>] the values in a log, each there once and those of a key in their order
  def assert_in_order(log)
    values = log.read(topic).map { |record| record[:value] }
    assert_empty values.tally.select { |_, count| count > 1 }.first(5)
    values.group_by { |value| value[/\A[^:]+/] }.each_value do |own|
      assert_equal (0...own.size).to_a, own.map { |value| value[/\d+\z/].to_i }
    end
    values
  end

  def assert_acknowledged_once_and_in_order
    values = assert_in_order(log)
    assert_empty (acknowledged - values).first(5), "acknowledged records are lost"
    values
  end

  def assert_read_by_both(server, values)
    server.eventually("both groups have read all", timeout_s: 120) do
      %w[one two].all? { |group| (values - evidence.values(group)).empty? }
    end
  end
end
