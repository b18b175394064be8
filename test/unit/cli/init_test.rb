# frozen_string_literal: true

require_relative "cli_case"
require "chaton/cli/init"

# `chaton init` writes config/chaton.rb from the files of other servers.
class InitTest < CLICase
  PUMA = <<~RUBY
    # Comments are left out.
    threads_count = ENV.fetch("RAILS_MAX_THREADS", 3)
    threads threads_count, threads_count
    port ENV.fetch("PORT", 3000)
    silence_single_worker_warning
    if ENV["RACK_ENV"] == "production"
      on_thread_start do
        Metrics.start
      end
      workers 2
    end
    plugin :tmp_restart
    plugin :yabeda
    pidfile ENV["PIDFILE"] if ENV["PIDFILE"]
  RUBY
  OF_PUMA = <<~RUBY
    # from config/puma.rb
    threads_count = ENV.fetch("RAILS_MAX_THREADS", 3)
    # not taken over: threads that wait cost others nothing here: without the line there are 1 to 32 (RAILS_MAX_THREADS changes that), at most as many as the database pool has connections
    # threads threads_count, threads_count
    port ENV.fetch("PORT", 3000)
    # not taken over: there is no such warning
    # silence_single_worker_warning
    if ENV["RACK_ENV"] == "production"
      # not taken over: threads come and go with the load; open what a thread needs on first use, with Thread#[]
      # on_thread_start do
      #   Metrics.start
      # end
      workers 2
    end
    plugin :tmp_restart
    # not taken over: plugins depend on Puma itself; remove it, and run its command with service "NAME", "COMMAND"
    # plugin :yabeda
    pidfile ENV["PIDFILE"] if ENV["PIDFILE"]
  RUBY
  KARAFKA = <<~'RUBY'
    require "karafka"
    class KarafkaApp < Karafka::App
      setup do |config|
        config.kafka = { 'bootstrap.servers': ENV.fetch("BROKERS", "127.0.0.1:9092") }
        config.client_id = "shop"
      end
      routes.draw do
        topic :events do
          consumer EventsConsumer
          dead_letter_queue(topic: "dead", max_retries: 2)
        end
        consumer_group :billing do
          topic("orders") { consumer Orders::Consumer }
          topic :refunds do
            consumer RefundsConsumer
            manual_offset_management true
          end
        end
      end
    end
  RUBY

  def test_a_file_of_puma
    text = init("config/puma.rb" => PUMA)
    assert_includes text, OF_PUMA
    assert_equal 0, chaton("check").first
  end

  def test_a_file_of_sidekiq
    text = init("config/sidekiq.yml" => "concurrency: 7\nqueues: [[critical, 3], [low, 1]]\ntimeout: 9\n" \
                                        "labels: [a, b]\nverbose: true\n")
    assert_includes text, <<~RUBY
      jobs do
        store ENV.fetch("REDIS_URL", "redis://127.0.0.1:6379/0")   # where Sidekiq's jobs are; set REDIS_URL or change this line
        queues "critical": 3, "low": 1
        threads 1..7
        shutdown_timeout_s 9.0
        labels "a", "b"
        sidekiq_file "none"
      end
    RUBY
    assert_match(/^# not taken over: config.sidekiq.yml: verbose is not read/, text)
    refute_match(/no REDIS_URL/, text)
    assert_equal [["critical", 3], ["low", 1]], Chaton::Config.load({}, env: {}, root: @root).jobs.queues
  end

  def test_a_file_of_karafka
    assert_includes init("karafka.rb" => KARAFKA), <<~'RUBY'
      streams do
        broker "kafka://#{ENV.fetch("BROKERS", "127.0.0.1:9092")}"
        # not taken over: karafka.rb:5: config.client_id = "shop"
        topic "events", "EventsConsumer", group: "app", dead_letter: "dead", retries: 2
        topic "orders", "Orders::Consumer", group: "billing"
        topic "refunds", "RefundsConsumer", group: "billing", offsets: :manual
      end
    RUBY
    groups = Chaton::Config.load({}, env: {}, root: @root).streams.groups.size
    assert_equal 2, groups
  end

  def test_answers_are_compressed
    assert_match(/^web \{ compress true \}$/, init({}))
    assert Chaton::Config.load({}, env: {}, root: @root).web.compress
  end

  def test_variables_of_thruster
    text = Chaton::CLI::Init::ThrusterVariables.lines(
      "THRUSTER_HTTP_IDLE_TIMEOUT" => "45", "HTTP_IDLE_TIMEOUT" => "99", "GZIP_COMPRESSION_ENABLED" => "false",
      "GZIP_COMPRESSION_JITTER" => "0", "MAX_REQUEST_BODY" => "0", "HTTP_READ_TIMEOUT" => "soon", "LOG_REQUESTS" => "1",
      "CACHE_SIZE" => "1000", "PATH" => "/bin"
    ).join("\n")
    assert_equal <<~RUBY.chomp, text
      web do
        compress false
        # from the environment variables of Thruster
        idle_timeout_s 45
        # not taken over: HTTP_READ_TIMEOUT: "soon" is no number
        access_log :json
        # not taken over: CACHE_SIZE: responses are not cached; static files have static_memory_bytes_max
        # not taken over: GZIP_COMPRESSION_JITTER: compressed responses are always up to 32 bytes longer
      end
    RUBY
    init("config/chaton.rb" => text) { |status| assert_equal 1, status }
    web = Chaton::Config.load({}, env: {}, root: @root).web
    assert_equal [false, 45.0], [web.compress, web.idle_timeout_s]
  end

  def test_a_file_that_exists_is_kept
    init("config/chaton.rb" => "threads 1..3\n") { |status| assert_equal 1, status }
    assert_equal "threads 1..3\n", File.read("config/chaton.rb")
    assert_match(/\A# Settings of Chaton/, chaton("init", "--print")[1])
  end

  private

  # @return [String] the application's directory
  def write(path, text)
    File.write(path, text)
    @root
  end

  # Writes the files, runs the command and returns what it has written.
  def init(files)
    FileUtils.mkdir_p("config")
    files.each { |path, text| File.write(path, text) }
    status, out, errors = chaton("init")
    return yield status if block_given?

    assert_equal [0, ""], [status, errors]
    assert_match(%r{\Awrote config/chaton.rb}, out)
    File.read("config/chaton.rb")
  end
end
