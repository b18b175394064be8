# frozen_string_literal: true

require_relative "../support/machine"
require_relative "../support/wrk"
require_relative "proof/chaton_stack"
require_relative "proof/puma_and_sidekiq"

module Bench
  # The Rails example on Chaton, and on Puma with Sidekiq: what deploys, a kill and jobs that compute do to it, and its
  # memory. Each side is measured alone on the machine.
  class Proof
    DEPLOYS = 3
    DEPLOY_CLIENTS = 20
    JOBS = 100
    # So many have left a note when the process that runs them is killed.
    BEFORE_KILL = 20
    # A job that has not come back after this time without a further note counts as lost. Chaton looks for jobs of a
    # process that has ended each 5 s, Sidekiq (without Pro) does not.
    COMES_BACK_S = 20
    COMPUTING = 4
    COMPUTES_S = 4
    CLIENTS = 10
    PAGE = "/messages"
    PROGRAMS = %w[puma redis-server sidekiq wrk].freeze
    PROBE_EVERY_S = 0.05

    Row = Struct.new(:failed, :requests, :lost, :p99_ms, :memory, :versions, keyword_init: true)

    # @return [Array<String>] what is not installed
    def self.missing
      PROGRAMS.reject { |program| Machine.installed?(program) } +
        %w[railties redis].select { |gem| Gem::Specification.find_all_by_name(gem).empty? }
    end

    # @yieldparam line [String] what is being measured
    # @return [String] a table
    def run(&progress)
      # It needs a gem, so it comes after {missing}.
      require_relative "../support/redis_server"
      @progress = progress
      table([ChatonStack, PumaAndSidekiq].to_h { |kind| measure(kind) })
    end

    private

    def measure(kind)
      redis = RedisServer.new.start
      folder = Dir.mktmpdir("chaton-proof")
      stack = kind.new(redis, folder).start
      row = Row.new
      deploys(stack, row)
      kills(stack, row)
      beside_jobs(stack, row)
      row.memory = stack.memory
      row.versions = stack.versions
      [stack.name, row]
    ensure
      stack&.stop
      redis&.stop
      FileUtils.rm_rf(folder)
    end

    # Traffic goes on, in runs of whole seconds, until the last deploy is over.
    def deploys(stack, row)
      @progress.call("#{stack.name}: #{DEPLOYS} deploys under load")
      deploying = Thread.new { DEPLOYS.times { stack.deploy } }
      runs = []
      runs << Wrk.new(stack.url(PAGE), connections: DEPLOY_CLIENTS, seconds: 4).run while deploying.alive?
      deploying.join
      row.failed = runs.sum(&:errors)
      row.requests = runs.sum(&:requests)
    end

    def kills(stack, row)
      @progress.call("#{stack.name}: kill -9 of the process that runs jobs")
      (1..JOBS).each { |number| stack.enqueue("Note", number) }
      sleep PROBE_EVERY_S until stack.noted.size > BEFORE_KILL
      stack.kill_jobs
      seen, since = stack.noted.size, now
      while (missing = (1..JOBS).to_a - (noted = stack.noted)).any? && now - since < COMES_BACK_S
        seen, since = noted.size, now if noted.size > seen
        sleep PROBE_EVERY_S
      end
      row.lost = missing.size
    end

    def beside_jobs(stack, row)
      @progress.call("#{stack.name}: the page beside #{COMPUTING} jobs that compute")
      COMPUTING.times { stack.enqueue("Compute", COMPUTES_S) }
      row.p99_ms = Wrk.new(stack.url(PAGE), connections: CLIENTS, seconds: COMPUTES_S).run.p99_ms
    end

    CELLS = {
      "requests failed in #{DEPLOYS} deploys" => ->(row) { "#{row.failed} of #{row.requests}" },
      "jobs not done after a kill -9" => ->(row) { "#{row.lost} of #{JOBS}" },
      "p99 of a page beside #{COMPUTING} jobs that compute" => ->(row) { format("%.0f ms", row.p99_ms) },
      "memory of all processes (PSS)" => ->(row) { format("%.0f MB", row.memory.values.sum) }
    }.freeze

    def table(rows)
      versions = rows.values.last.versions
      head = ["Rails #{versions["Rails"]}, 2 web workers, 1 for jobs",
              *rows.map { |name, row| name.gsub(/\w+/) { |word| [word, row.versions[word]].compact.join(" ") } }]
      body = CELLS.map { |label, cell| [label, *rows.values.map(&cell)] }
      [*aligned(head, body), "", *rows.map { |name, row| "#{name}: #{processes(row)}" }].join("\n")
    end

    def aligned(head, body)
      widths = [head, *body].transpose.map { |column| column.map(&:size).max }
      lines = [head, *body].map do |label, *cells|
        [label.ljust(widths.first), *cells.zip(widths.drop(1)).map { |cell, width| cell.rjust(width) }].join("  ")
      end
      [lines.first, widths.map { |width| "─" * width }.join("──"), *lines.drop(1)]
    end

    def processes(row) = row.memory.map { |title, mb| format("%s %.0f MB", title, mb) }.join(", ")

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
