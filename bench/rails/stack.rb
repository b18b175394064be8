# frozen_string_literal: true

require "json"
require "securerandom"
require_relative "../peers/server"

module Bench
  module Rails
    # One side of the comparison: two web workers and one process for jobs, all of the Rails example in production.
    # Subclasses say how its processes are started, deployed and killed.
    class Stack < Server
      RACKUP = File.join(__dir__, "config.ru")
      # The pool of connections that `rails new` gives; Chaton has as many threads.
      POOL = 5
      JOB_THREADS = 5
      # Longest wait for a deploy, or for a process that boots Rails on a busy machine.
      LIMIT_S = 120

      # @param redis [RedisServer]
      # @param folder [String] where it runs
      def initialize(redis, folder)
        super(workers: 2)
        @redis = redis
        @folder = folder
      end

      # @return [self] once it serves a page and has run a job
      def start
        super(RACKUP, folder: @folder)
        enqueue("Note", 0)
        wait_until("a job has run") { noted.include?(0) }
        self
      end

      # Stores a job in Sidekiq's format.
      def enqueue(job, *args)
        document = { class: job, args:, jid: SecureRandom.hex(12), queue: "default", retry: true,
                     created_at: Time.now.to_f, enqueued_at: Time.now.to_f }
        @redis.call("SADD", "queues", "default")
        @redis.call("LPUSH", "queue:default", JSON.generate(document))
      end

      def name = self.class.label

      # @return [Array<Integer>] numbers of the jobs that have left a note
      def noted
        File.readlines(File.join(@folder, "notes")).map(&:to_i)
      rescue Errno::ENOENT
        []
      end

      # @return [Hash{String => String}] by name of what its processes have loaded
      def versions
        Dir[File.join(@folder, "versions.*")].map { |file| JSON.parse(File.read(file)) }.reduce({}, :merge)
      end

      # @return [Hash{String => Float}] proportional megabytes by kind of process; pages that are shared count once
      def memory
        trees.flat_map(&:pids).group_by { |pid| title(pid) }.transform_values do |pids|
          pids.sum { |pid| ProcTree.pss_mb(pid) }
        end
      end

      private

      def trees = [tree]

      def environment
        { **ENVIRONMENT, "RAILS_ENV" => "production", "SECRET_KEY_BASE" => "s" * 64, "RAILS_MAX_THREADS" => POOL.to_s,
                         "DATABASE_URL" => "sqlite3:#{@folder}/app.sqlite3", "REDIS_URL" => @redis.url }
      end

      # What follows a process's name are addresses, numbers and its directory.
      def title(pid) = File.read("/proc/#{pid}/cmdline")[self.class::TITLES].to_s.delete("0-9").squeeze(" ")

      def wait_until(what)
        deadline = now + LIMIT_S
        until yield
          raise "#{name}: waited too long until #{what}:\n#{log}" if now > deadline
          sleep PROBE_EVERY_S
        end
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
