# frozen_string_literal: true

require "open3"
require_relative "console"
require_relative "evidence"
require_relative "server"

# The real `exe/chaton` consuming streams: configuration and consumers in a scratch directory.
class StreamsServer < Server
  EVIDENCE = File.expand_path("evidence.rb", __dir__)
  # Deaths in a row are answered at once.
  QUICK = "restart_delay_s 0.05\nrestart_delay_max_s 0.05"

  # @param broker [String] the log's address
  # @param topics [String] lines of `streams { }`
  # @param consumers [String] Ruby: the consumer classes
  # @param evidence [String] directory of the evidence
  # @param config [String] more of the configuration
  # @param options [Hash] as of Server
  def initialize(broker:, evidence:, topics: "", consumers: "", workers: "streams: 1", threads: "1..8", config: "",
                 **options)
    env = { Evidence::VARIABLE => evidence }.merge(options.fetch(:env, {}))
    super(rackup: nil, **options, env: env, config: <<~RUBY)
      workers #{workers}
      threads #{threads}
      #{config}
      streams do
        broker #{broker.dump}
        load "app/consumers"
        #{topics}
      end
    RUBY
    write("app/consumers/consumers.rb", "require #{EVIDENCE.dump}\n#{consumers}")
  end

  # Waits until every worker is ready.
  #
  # @return [self]
  def ready
    eventually("ready", timeout_s: WAIT_S * 2) do
      raise Late, "the server has ended; the log:\n#{log}" unless @waiter.alive?

      running?
    end
    self
  end

  # A command of `chaton streams`, in a process of its own.
  #
  # @return [(String, String, Integer)] output, errors, exit status
  def streams_command(*words, input: "")
    command = [RbConfig.ruby, "-I", LIB, EXE, "streams", *words]
    out, err, status = Open3.capture3(@env, *command, chdir: dir, stdin_data: input)
    [out, err, status.exitstatus]
  end

  # Ends everything at once, the supervisor first, so that it repairs nothing.
  def kill_all
    pids = workers
    signal("STOP")
    pids.each { |pid| signal("KILL", pid) }
    signal("KILL")
    wait_exit
    wait_all_gone
  end

  private

  def running?
    now = status
    return now["state"] == "running" unless now.key?("workers")

    now["state"] == "running" && now["workers"].any? && now["workers"].all? { |worker| worker["ready"] }
  rescue Chaton::Error, SystemCallError, JSON::ParserError
    false
  end
end
