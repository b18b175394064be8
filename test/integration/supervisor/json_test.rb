# frozen_string_literal: true

require "test_helper"
require "open3"
require "support/server"

# docs/JSON.md describes what `--json` prints: each field of a real answer is in it, and each of its fields is there.
class JSONTest < Minitest::Test
  include ServerTest

  CONFIG = <<~'RUBY'
    threads 1..3
    jobs { store "sqlite://jobs.db"; load "app/jobs" }
    streams do
      broker "log://log"
      load "app/consumers"
      topic "orders", "Tally", group: "tally", partitions: 2, dead_letter: "orders.dead"
    end
    service "waiter", "sleep 1000"
  RUBY
  JOBS = <<~RUBY
    require "chaton/job"
    class Note
      include Chaton::Job
      def perform(*) = (sleep 0.01 until File.exist?("go"))
    end
  RUBY
  CONSUMERS = <<~RUBY
    require "chaton/consumer"
    class Tally < Chaton::Consumer
      def consume(batch) = batch.each(&:value)
    end
  RUBY

  # A row of a table: a field, whether it may be absent.
  Field = Struct.new(:path, :optional) do
    def covers?(found)
      return found == path || found.start_with?("#{path}.") unless path.end_with?("*")

      found.start_with?(path.delete_suffix("*"))
    end
  end

  # @return [Hash{String=>Array<Field>}] by command
  def self.documented(file)
    group = command = nil
    File.foreach(file, chomp: true).with_object(Hash.new { |all, name| all[name] = [] }) do |line, found|
      case line
      when /\A## `chaton ([a-z]+)`/ then group = command = Regexp.last_match(1)
      when /\A`([a-z ]+)`.*:\z/ then command = "#{group} #{Regexp.last_match(1)}"
      when /\A\| (`.*?`) \| (.*) \|\z/
        names, says = Regexp.last_match.captures
        optional = says.include?("optional")
        found[command].concat(names.scan(/`([^`]+)`/).map { |name,| Field.new(name, optional) })
      end
    end
  end
  FIELDS = documented(File.expand_path("../../../docs/JSON.md", __dir__))

  def test_status_of_workers
    server = started("workers 2")
    status = run_json(server, "status")
    assert_documented "status", status
    assert_equal 2, status["workers"].size
    assert_documented "check", run_json(server, "check")
    assert_documented "profile status", run_json(server, "profile", "status")
  end

  def test_status_of_one_process
    server = started("workers 0")
    run_json(server, "jobs", "enqueue", "Note")
    server.eventually("the job runs") { server.status.dig("workload", "running").any? }
    status = run_json(server, "status")
    assert_documented "status", status
    assert_equal({ "class" => "Note", "jid" => status.dig("workload", "running", 0, "context", "jid") },
                 status.dig("workload", "running", 0, "context"))
    server.write("go", "")
  end

  def test_jobs
    server = started("workers 0")
    run_json(server, "jobs", "enqueue", "Note")
    server.eventually("the job runs") { server.status.dig("workload", "running").any? }
    %w[stats queues processes].each { |name| assert_documented "jobs #{name}", run_json(server, "jobs", name) }
    server.write("go", "")
    run_json(server, "jobs", "pause", "default")
    run_json(server, "jobs", "enqueue", "Note")
    assert_documented "jobs list", run_json(server, "jobs", "list")
  end

  def test_streams
    server = started("workers 0")
    # The server has made the topic that was declared when it started.
    config = server.read("config/chaton.rb")
    server.write("config/chaton.rb", config.sub('topic "orders"', "topic \"more\", \"Tally\", group: \"tally\"; \\0"))
    assert_documented "streams plan", run_json(server, "streams", "plan", status: 2)
    run_json(server, "streams", "apply")
    assert_documented "streams produce", run_json(server, "streams", "produce", "orders", "one", "--header", "a=1")
    %w[topics groups lag].each { |name| assert_documented "streams #{name}", run_json(server, "streams", name) }
    assert_documented "streams tail", run_json(server, "streams", "tail", "orders", "--from", "earliest")
    assert_documented "streams dlq list", run_json(server, "streams", "dlq", "list")
  end

  private

  def started(config)
    server = boot(config: "#{config}\n#{CONFIG}") do |one|
      one.write("app/jobs/note.rb", JOBS)
      one.write("app/consumers/tally.rb", CONSUMERS)
    end
    server.eventually("the worker is ready") { Array(server.status["workers"]).all? { |worker| worker["ready"] } }
    server
  end

  def run_json(server, *words, status: 0)
    out, err, ended = Open3.capture3(*server.command.first(4), *words, "--json", chdir: server.dir, stdin_data: "")
    assert_equal [status, ""], [ended.exitstatus, err], words
    JSON.parse(out)
  end

  def assert_documented(command, answer)
    fields = FIELDS.fetch(command)
    found = paths(answer)
    unknown = found.reject do |path|
      fields.any? { |one| one.covers?(path) || (path.end_with?("[]") && one.path.start_with?(path)) }
    end
    assert_empty unknown, "#{command}: docs/JSON.md does not name these"
    wanted = fields.reject { |one| one.optional || emptied?(one.path, found) || absent_part?(one, fields, found) }
    absent = wanted.reject { |one| found.any? { |path| one.covers?(path) } }
    assert_empty absent.map(&:path), "#{command}: docs/JSON.md names these, which are not printed"
  end

  # Whether it would be in an Array that is empty now.
  def emptied?(path, found) = found.any? { |one| one.end_with?("[]") && path.start_with?(one) }

  # Whether it belongs to a part that is optional and absent, such as `workers` of one process.
  def absent_part?(field, fields, found)
    part = field.path[/\A[a-z_]+(?=[.\[])/] or return false

    found.none? { |path| path.match?(/\A#{part}(?:[.\[]|\z)/) } &&
      fields.any? { |one| one.optional && one.path.start_with?(part) }
  end

  # @return [Array<String>] "a.b", "list[].c"; of an empty Array "list[]"
  def paths(value, at = "")
    case value
    when {} then ["#{at}.*"]
    when Hash then value.flat_map { |name, one| paths(one, at.empty? ? name : "#{at}.#{name}") }
    when Array then value.empty? ? ["#{at}[]"] : value.flat_map { |one| paths(one, "#{at}[]") }
    else [at]
    end.uniq
  end
end
