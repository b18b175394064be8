# frozen_string_literal: true

require_relative "../jobs/process_set"
require_relative "job_record"

module Sidekiq
  # A process that runs jobs.
  class Process
    # @param facts [Hash{String=>Object}] what it wrote with its last heartbeat
    def initialize(facts, native = Chaton::Jobs.client.native)
      @facts = facts
      @native = native
    end

    # @return [Object] a fact, such as "pid", "busy" or "beat"
    def [](name)
      # A process of Sidekiq 8 may change it while it runs.
      now = @native.load(identity)[name] if name == "concurrency" && identity
      now ? now.to_i : @facts[name]
    end

    # @return [String]
    def identity = @facts["identity"]

    # @return [String, nil]
    def tag = @facts["tag"]

    # @return [Array<String>]
    def labels = @facts["labels"].to_a

    # @return [String, nil]
    def version = @facts["version"]

    # @return [Hash{String=>Hash}, nil] queues that have threads of their own, by name
    def capsules = @facts["capsules"]

    # @return [Array<String>]
    def queues = weights.keys

    # @return [Hash{String=>Integer}] by queue
    def weights
      return capsules.values.map { |capsule| capsule["weights"] }.reduce({}, :merge) if capsules

      [@facts["weights"] || @facts["queues"].to_a.to_h { |queue| [queue, 0] }].flatten.reduce({}, :merge)
    end

    # @return [Boolean] whether it runs inside of another program
    def embedded? = @facts["embedded"] || false

    # @return [Boolean] whether it claims no more jobs
    def stopping? = @facts["quiet"] == "true"

    # @return [false] Sidekiq Enterprise elects leaders
    def leader? = false

    # Makes it claim no more jobs, with its next heartbeat.
    def quiet! = signal("TSTP", "quiet")

    # Makes it stop, with its next heartbeat.
    def stop! = signal("TERM", "stop")

    # Makes it log the backtraces of its threads, with its next heartbeat.
    def dump_threads = @native.signal(identity, "TTIN")

    private

    def signal(name, what)
      raise "Can't #{what} an embedded process" if embedded?

      @native.signal(identity, name)
    end
  end

  # The processes that run jobs, on all machines.
  class ProcessSet
    include Enumerable

    # @param identity [String]
    # @return [Process, nil]
    def self.[](identity) = new.find { |process| process.identity == identity }

    # Ignores whether to remove the dead ones: they vanish by themselves.
    def initialize(*, native: Chaton::Jobs.client.native)
      @native = native
    end

    # @yieldparam process [Process]
    # @return [Enumerator, self]
    def each
      return enum_for(:each) unless block_given?

      Chaton::Jobs::ProcessSet.new(@native).each do |worker|
        facts = { "identity" => worker.identity, "busy" => worker.busy, "beat" => worker.beat_at,
                  "quiet" => worker.quiet.to_s, "rss" => worker.rss_kb }
        yield Process.new(worker.details.merge(facts), @native)
      end
      self
    end

    def size = count

    # @return [Integer] threads
    def total_concurrency = sum { |process| process["concurrency"].to_i }

    # @return [Integer]
    def total_rss_in_kb = sum { |process| process["rss"].to_i }
    alias total_rss total_rss_in_kb

    # @return [String] empty: Sidekiq Enterprise elects leaders
    def leader = ""
  end

  # A job that runs.
  class Work
    attr_reader :process_id, :thread_id, :queue
    # @return [String] its document
    attr_reader :payload
    # @return [Time] when it began
    attr_reader :run_at

    # @param row [Array(String, String, String, Integer)] thread, queue, document and time
    def initialize(process_id, row)
      @process_id = process_id
      @thread_id, @queue, @payload, run_at = row
      @run_at = Time.at(run_at)
    end

    # @return [JobRecord]
    def job = @job ||= JobRecord.new(payload, queue)

    # As Sidekiq 7 has it.
    #
    # @param name [String] "queue", "payload" or "run_at" (in seconds since 1970)
    # @return [Object, nil]
    def [](name) = { "queue" => queue, "payload" => payload, "run_at" => run_at.to_i }[name]
  end

  # The jobs that run, as of the last heartbeats of their processes.
  class WorkSet
    include Enumerable

    def initialize(native: Chaton::Jobs.client.native)
      @native = native
    end

    # @yieldparam process_id [String]
    # @yieldparam thread_id [String]
    # @yieldparam work [Work] the longest running first
    # @return [Enumerator, self]
    def each
      return enum_for(:each) unless block_given?

      works = @native.processes.flat_map { |process| process[:work].map { |row| Work.new(process[:identity], row) } }
      works.sort_by(&:run_at).each { |work| yield work.process_id, work.thread_id, work }
      self
    end

    def size = @native.processes.sum { |process| process[:busy] }

    # @param jid [String]
    # @return [Work, nil]
    def find_work(jid) = each { |_, _, work| return work if work.job.jid == jid } && nil
    alias find_work_by_jid find_work
  end
  Workers = WorkSet
end
