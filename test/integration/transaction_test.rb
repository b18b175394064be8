# frozen_string_literal: true

require "test_helper"
require "support/streams_test_case"

# Chaton.transaction: jobs, records, the acknowledgement and the commit in one transaction of one file, whatever dies.
class TransactionTest < Minitest::Test
  include StreamsTest

  CODE = <<~'RUBY'
    require "chaton/job"

    # Waits in a queue that nobody serves.
    class Parked
      include Chaton::Job
      job_options queue: "parked"
      def perform(*) = raise
    end

    class Unique
      include Chaton::Job
      job_options queue: "parked", unique_for: 60
      def perform = raise
    end

    # Ends its process by SIGKILL, once for each place of each number.
    module Deaths
      def self.at(place, number)
        return unless number % 4 == PLACES.index(place)

        File.open(File.join(ENV.fetch("DEATHS"), "#{place}-#{number}"), File::CREAT | File::EXCL | File::WRONLY).close
        place == :about ? Thread.new { sleep(number / 4 % 10 * 0.0005) && kill } : kill
      rescue Errno::EEXIST
        nil
      end

      def self.kill = Process.kill(:KILL, Process.pid)
      PLACES = %i[inside behind about].freeze
    end

    class Both
      include Chaton::Job

      def perform(number)
        Chaton.transaction do
          Parked.perform_async(number)
          Deaths.at(:inside, number)
          Chaton.produce("OUT", number.to_s)
        end
        Deaths.at(:behind, number)
        Deaths.at(:about, number)
      end
    end

    class EventsConsumer < Chaton::Consumer
      def consume(batch)
        batch.each do |record|
          Chaton.transaction do
            Parked.perform_async(record.raw.to_i)
            Deaths.at(:inside, record.raw.to_i)
            produce("OUT", record.raw)
          end
        end
        Deaths.at(:behind, batch.first.raw.to_i)
        Deaths.at(:about, batch.first.raw.to_i)
      end
    end
  RUBY
  MARKING = <<~RUBY
    class EventsConsumer
      def consume(batch)
        batch.each do |record|
          number = record.raw.to_i
          Chaton.transaction do
            Parked.perform_async(number)
            Deaths.at(:inside, number)
            produce("OUT", record.raw)
            mark(record) if number.zero?
          rescue Chaton::StreamRefused => e
            raise unless e.message.include?("behind the block")
          end
          Deaths.at(:about, number)
          mark(record)
          Deaths.at(:behind, number)
        end
      end
    end
  RUBY
  FAILING = <<~RUBY
    class Failing
      include Chaton::Job
      job_options retry: false

      def perform(where)
        Chaton.transaction do
          Parked.perform_async(1)
          Chaton.produce("OUT", "1")
          raise "inside" if where == "inside"
          Unique.perform_async if where == "unique"
          Chaton.transaction { Chaton.produce("OUT", "x" * (17 << 20)) } if where == "large"
          Chaton.produce!("OUT", "1") if where == "durable"
          Chaton.produce("OUT", "1", partition: 99) if where == "partition"
        rescue Chaton::StoreRefused, Chaton::BufferFull, Chaton::StreamRefused => e
          File.write(File.join(ENV.fetch("DEATHS"), where), e.message)
          raise
        end
        raise "behind" if where == "behind"
      end
    end

    class Recovering
      include Chaton::Job

      def perform
        begin
          Chaton.transaction do
            Parked.perform_async(2)
            Chaton.produce("OUT", "2")
            raise "dropped"
          end
        rescue StandardError
          Chaton.transaction { Parked.perform_async(3) }
        end
        Chaton.transaction { Chaton.produce("OUT", "3") }
      end
    end
  RUBY
  # Every fourth of them ends no process.
  NUMBERS = (0...Soak.number(16, 60)).to_a

  def kind = :local

  def time_limit_s = 180

  def file = "#{scratch}/both.db"

  def broker = "sqlite://#{file}"

  def test_a_job_ends_with_all_it_writes_or_nothing
    server = boot(workers: "jobs: 2")
    enqueue(server, *NUMBERS.map { |number| "Both.perform_async(#{number})" })
    assert_written_once(server)
    assert_equal 0, server.stop
  end

  def test_a_batch_ends_with_all_it_writes_or_nothing
    create(partitions: 2)
    log.write(topic, NUMBERS.map { |number| [number.to_s] })
    server = boot(workers: "streams: 2", batch: 1)
    assert_all_committed(server, timeout_s: 120)
    assert_written_once(server)
    assert_equal 0, server.stop
  end

  def test_a_mark_writes_what_was_held_until_then
    create(partitions: 2)
    log.write(topic, NUMBERS.map { |number| [number.to_s] })
    server = boot(MARKING, workers: "streams: 2", offsets: :manual)
    assert_all_committed(server, timeout_s: 120)
    assert_written_once(server)
    assert_equal 0, server.stop
  end

  def test_nothing_is_written_when_the_block_or_the_job_fails
    server = boot(FAILING, workers: "jobs: 1")
    wheres = %w[inside behind unique large durable partition]
    enqueue(server, *wheres.map { |where| "Failing.perform_async(#{where.dump})" }, "Recovering.perform_async")
    counts = "SELECT (SELECT count(*) FROM waiting) || ' ' || (SELECT count(*) FROM flights)"
    server.eventually("all have ended") { query(counts) == "1 0" }
    assert_equal [["3"], ["3"]], [parked, log.read(topic("out")).map { |record| record[:value] }]
    assert_match(/a unique job cannot be enqueued inside Chaton.transaction/, File.read("#{scratch}/deaths/unique"))
    assert_match(/holds at most 10000 records and 16777216 bytes/, File.read("#{scratch}/deaths/large"))
    assert_match(/is not written before its end/, File.read("#{scratch}/deaths/durable"))
    assert_match(/ 99/, server.log)
    assert_equal 0, server.stop
  end

  def test_it_needs_one_file_and_a_job
    server = boot(workers: "jobs: 1", store: "sqlite://#{scratch}/jobs.db")
    enqueue(server, "Both.perform_async(3)")
    server.wait_line(/Chaton.transaction needs jobs and records in one file.*broker .*#{scratch}.jobs.db/)
    output = console(server).run("begin; Chaton.transaction { 1 }; rescue Chaton::Error => e; e.message; end")
    assert_match(/is for jobs and consumers/, output)
    assert_equal 0, server.stop
  end

  private

  def boot(more = "", workers:, batch: 100, store: broker, **options)
    Dir.mkdir("#{scratch}/deaths")
    create("out", partitions: 2)
    config = "#{StreamsServer::QUICK}\njobs do\n store #{store.dump}\n load \"app/consumers\"\n queues \"default\"\nend"
    topics = workers.include?("streams") ? [route(batch: batch, backoff: 0.05, **options)] : []
    boot_streams((CODE + more).gsub("OUT", topic("out")), workers: workers, threads: 1, config: config,
                                                          topics: topics, env: { "DEATHS" => "#{scratch}/deaths" })
  end

  def enqueue(server, *lines)
    console(server).run("require './app/consumers/consumers'; #{lines.join("; ")}")
  end

  # In a process of its own: SQLite's locks belong to a process.
  def query(sql)
    program = "db = SQLite3::Database.new(ARGV[0], readonly: true); db.busy_timeout = 30_000; puts db.execute(ARGV[1])"
    IO.popen([RbConfig.ruby, "-rsqlite3", "-e", program, file, sql], &:read).strip
  end

  def parked = query("SELECT json_extract(CAST(payload AS TEXT), '$.args[0]') FROM waiting").split

  def assert_written_once(server)
    server.eventually("all are written", timeout_s: 120) { log.size(topic("out")) >= NUMBERS.size }
    server.eventually("nothing is left", timeout_s: 60) { query("SELECT count(*) FROM flights") == "0" }
    written = log.read(topic("out")).map { |record| record[:value].to_i }
    assert_equal [NUMBERS] * 2, [written.sort, parked.map(&:to_i).sort]
    kills = Dir.children("#{scratch}/deaths").map { |name| name[/\A[a-z]+/] }.tally
    assert_equal %w[about behind inside], kills.keys.sort
  end
end
