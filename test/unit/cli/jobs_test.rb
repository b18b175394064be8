# frozen_string_literal: true

require_relative "cli_case"
require "chaton/native"
require "json"

# `chaton jobs …` against a store of this file.
class CLIJobsTest < CLICase
  # Notes what it is asked, and answers from memory.
  class Client
    attr_reader :asked, :settings
    attr_accessor :places, :processes

    def initialize
      @asked = []
      @places = {}
      @processes = []
    end

    def stats
      { processed: 1200, failed: 3, enqueued: 2, scheduled: size("scheduled"), retries: size("retry"),
        dead: size("dead"), in_flight: 0, processes: 1 }
    end

    def queues
      @places.filter_map do |place, entries|
        name = place[/\Aqueue:(.+)/, 1]
        name && { name: name, size: entries.size, latency_s: 1.2345, paused: false }
      end
    end

    def list(place, offset, count) = (@places[place] || [])[offset, count] || []

    def find(jid)
      @places.each { |place, entries| entries.each { |entry| return [place, entry] if entry[2].include?(jid) } }
      nil
    end

    def remove(place, entry) = take(:remove, place, entry)
    def requeue(place, entry) = take(:requeue, place, entry)
    def kill(place, entry) = take(:kill, place, entry)

    def clear(place, max)
      @asked << [:clear, place, max]
      @places.fetch(place).shift(max).size
    end

    def push_args(*arguments)
      @asked << [:push_args, *arguments]
      ["a" * 24]
    end

    def backup(path)
      yield 1, 2
      File.write(path, "copy")
    end

    def vacuum(force) = [force ? 2_000_000 : 1_000_000, 4096]

    def address = "sqlite:///x"

    %i[pause signal cancel].each { |name| define_method(name) { |*arguments| @asked << [name, *arguments] } }

    private

    def size(place) = (@places[place] || []).size

    def take(act, place, entry)
      @asked << [act, place, entry[2]]
      !@places.fetch(place).delete(entry).nil?
    end
  end

  def setup
    super
    @client = Client.new
    FileUtils.mkdir_p("storage")
    File.write("storage/chaton_development.db", "")
  end

  def job(jid, score = 0.0, **more)
    [score, 0, JSON.generate({ class: "Resize", args: [7, "x"], jid: jid, queue: "low", **more })]
  end

  def jobs(*argv)
    note = ->(settings) { (@settings = JSON.parse(settings, symbolize_names: true)) && @client }
    Chaton::Native::JobsClient.stub(:new, note) { chaton("jobs", *argv) }
  end

  def json(*argv) = JSON.parse(jobs(*argv, "--json")[1])

  def test_which_store
    jobs("stats")
    assert_equal "sqlite://#{@root}/storage/chaton_development.db", @settings[:url]
    jobs("stats", "--store", "redis://127.0.0.1/1")
    assert_equal "redis://127.0.0.1/1", @settings[:url]
    FileUtils.mkdir_p("config")
    File.write("config/chaton.rb", "jobs { store 'redis://127.0.0.1/2' }")
    jobs("stats")
    assert_equal "redis://127.0.0.1/2", @settings[:url]
  end

  def test_a_store_that_does_not_exist_is_not_made
    status, _, err = jobs("list", "-e", "production")
    assert_equal 1, status
    assert_match(%r{there is no job store at #{@root}/storage/chaton_production.db \(environment production\)}, err)
    assert_match(/there is chaton_development.db beside it/, err)
    assert_equal 1, jobs("list", "--store", "sqlite://storge/jobs.db").first
    refute_path_exists "storge"
    assert_equal 0, jobs("enqueue", "Resize", "--store", "sqlite://storage/new.db").first
  end

  def test_stats_and_queues
    @client.places = { "queue:low" => [job("1")], "retry" => [job("2", 9.0)] }
    assert_match(/^processed +1,200$/, jobs("stats")[1])
    assert_equal 1, json("stats")["retries"]
    assert_match(/^low +1 +1.235 +no$|^low +1 +1.234 +no$/, jobs("queues")[1])
    @client.places = {}
    assert_equal "no job was ever enqueued\n", jobs("queues")[1]
  end

  def test_list
    @client.places = { "queue:low" => [job("one")], "retry" => [job("two", 1.7e9, error_message: "no\nluck")],
                       "dead" => [[0.0, 0, "no json"]] }
    text = jobs("list")[1]
    assert_match(/^queue:low +one +Resize +7,"x"/, text)
    assert_match(/^retry +two +Resize .*2023.* no luck$/, text)
    assert_match(/^dead +\(no job document\)/, text)
    assert_equal %w[two], json("list", "retry").map { |one| one["jid"] }
    assert_equal %w[one], json("list", "--queue", "low").map { |one| one["jid"] }
    assert_equal [], json("list", "retry", "--offset", "1")
    assert_match(/did you mean queue:low\?/, jobs("list", "low")[2])
    assert_match(/did you mean retry\?/, jobs("list", "retries")[2])
    assert_match(/--limit must be a whole number/, jobs("list", "--limit", "x")[2])
    assert_match(/not both/, jobs("list", "retry", "-q", "low")[2])
  end

  def test_show
    @client.places = { "dead" => [job("one", 5.0, failed_at: 1.7e9, error_class: "IOError")] }
    text = jobs("show", "one")[1]
    assert_match(/^place +dead$/, text)
    assert_match(/^failed_at +2023-/, text)
    assert_equal ["dead", "IOError"], json("show", "one").then { |one| [one["place"], one["job"]["error_class"]] }
    status, _, errors = jobs("show", "nobody")
    assert_equal 1, status
    assert_match(/\Achaton: there is no job nobody; it has ended, or never existed/, errors)
    @client.processes = [{ identity: "h:1:n", info: "{}", work: [["t", "low", "{\"jid\":\"busy\"}", 1]] }]
    assert_match(/it runs in h:1:n/, jobs("show", "busy")[2])
  end

  def test_acts_on_one_job
    { "retry" => :requeue, "delete" => :remove, "kill" => :kill }.each do |command, act|
      @client.places = { "retry" => [job("one", 5.0)] }
      status, out, = jobs(command, "one")
      assert_equal [0, act], [status, @client.asked.last.first], command
      assert_match(/\Ajob one \(Resize\) /, out)
    end
    @client.places = { "retry" => [job("one", 5.0)] }
    @client.define_singleton_method(:kill) { |*| false }
    assert_match(/job one is no longer in retry/, jobs("kill", "one")[2])
  end

  def test_acts_on_all
    @client.places = { "retry" => Array.new(1_234) { |number| job(number.to_s, 5.0) }, "dead" => [job("x")] }
    assert_equal({ "place" => "retry", "count" => 1_234 }, json("retry", "--all"))
    assert_equal({ "place" => "dead", "count" => 1 }, json("delete", "--all", "dead", "--yes"))
    assert_match(/PLACE is missing: chaton jobs delete JID \| --all PLACE/, jobs("delete", "--all")[2])
    assert_match(/wait to be run/, jobs("retry", "--all", "queue:low")[2])
  end

  def test_emptying_a_place_asks
    @client.places = { "queue:low" => [job("1"), job("2")] }
    [%w[drain low], %w[delete --all queue:low]].each do |command|
      status, _, errors = jobs(*command)
      assert_equal 1, status
      assert_equal "chaton: 2 jobs of queue:low will be deleted for good. Confirm with --yes\n", errors
    end
    refute_includes @client.asked.flatten, :clear
    assert_equal "2 jobs of queue:low are deleted\n", jobs("drain", "low", "--yes")[1]
    assert_equal 2, @client.asked.flatten.last
  end

  def test_pause_cancel_and_signal
    jobs("pause", "low")
    jobs("resume", "queue:low")
    jobs("cancel", "one")
    assert_equal [[:pause, "low", true], [:pause, "low", false], [:cancel, "one"]], @client.asked
    @client.processes = [{ identity: "h:1:abc", info: "{\"queues\":[\"low\"]}", busy: 1, quiet: false, rss_kb: 2048,
                           beat_at: 1.7e9, work: [["t", "low", job("one")[2], 17]] }]
    assert_match(/did you mean h:1:abc\?/, jobs("signal", "h:1:abd", "TERM")[2])
    assert_match(/HUP is not one of TSTP, TERM, TTIN/, jobs("signal", "h:1:abc", "hup")[2])
    assert_equal 0, jobs("signal", "h:1:abc", "sigterm")[0]
    assert_equal [:signal, "h:1:abc", "TERM"], @client.asked.last
    assert_match(/^h:1:abc .*2 MiB.*\n  Resize jid=one/, jobs("processes")[1])
    assert_equal "one", json("processes").first["work"].first["jid"]
  end

  def test_enqueue
    assert_equal "job #{"a" * 24} is enqueued in low\n", jobs("enqueue", "A::B", "[1, null]", "-q", "low")[1]
    assert_equal [:push_args, "low", "{\"retry\":true,\"queue\":\"low\",\"class\":\"A::B\"", [[1, nil]], nil],
                 @client.asked.last
    jobs("enqueue", "A", "--in", "60")
    assert_in_delta Time.now.to_f + 60, @client.asked.last.last, 5
    assert_match(/write '\[7\]'/, jobs("enqueue", "A", "7")[2])
    assert_match(/is not JSON/, jobs("enqueue", "A", "{")[2])
    assert_match(/not a name of a class/, jobs("enqueue", "a")[2])
  end

  def test_vacuum
    assert_equal({ "before" => 1_000_000, "after" => 4096 }, json("vacuum"))
    assert_equal 2_000_000, json("vacuum", "--yes")["before"]
  end

  def test_backup
    assert_equal({ "file" => "#{@root}/copy.db", "bytes" => 4 }, json("backup", "copy.db"))
    assert_match(/copy.db exists/, jobs("backup", "copy.db")[2])
  end

  def test_mistakes
    assert_match(/no command "lst"; did you mean list\?/, jobs("lst")[2])
    assert_match(/--limt is not an option; did you mean --limit\?/, jobs("list", "--limt", "3")[2])
    assert_match(/JID is missing: chaton jobs show JID/, jobs("show")[2])
    assert_match(/one argument too many: b/, jobs("show", "a", "b")[2])
    Chaton::Native::JobsClient.stub(:new, ->(_) { raise Chaton::Error, "not there" }) do
      assert_equal [1, "", "chaton: not there\n"], chaton("jobs", "stats")
    end
  end

  def test_help
    text = jobs("--help")[1]
    assert_equal text, jobs[1]
    Chaton::CLI::Jobs::ALL.each_key do |name|
      assert_match(/^  #{name}\b/, text)
      help = jobs(name, "--help")[1]
      assert_match(/\Achaton jobs #{name}: .*\n\nUsage: chaton jobs #{name}/, help)
      assert_includes help, "--json"
    end
  end
end
