# frozen_string_literal: true

require "fileutils"
require "json"
require "securerandom"
require "timeout"
require "tmpdir"
require_relative "../support/cpu_clock"
require_relative "../support/kafka"

module Bench
  module Streams
    # The parts of one slice: a log, a client that produces, and a server that reports when it has consumed.
    class Stage
      # On a disk, because a durable log has to wait for a disk.
      FOLDER = File.expand_path("../../tmp/bench", __dir__)
      LIMIT_S = 300
      PROBE_EVERY_S = 0.5
      # Filled topics, kept for all cases that read the same records.
      FILLED = {} # rubocop:disable Style/MutableConstant

      class << self
        # @param log [Symbol] :kafka or :local
        # @yieldparam [Stage]
        def with(log)
          stage = new(log)
          yield stage
        ensure
          stage&.close
        end

        # @return [Array<String>] topics on the shared Kafka, filled once per run
        def filled(count, partitions:, records:, bytes:)
          Array.new(count) do |number|
            FILLED[[number, partitions, records, bytes]] ||= with(:kafka) do |stage|
              stage.fresh_topic(partitions).tap { |topic| stage.ask("fill", topic, records, bytes) }
            end
          end
        end
      end

      attr_reader :folder, :server, :log

      # @param log [Symbol]
      def initialize(log)
        @log = log
        FileUtils.mkdir_p(FOLDER)
        @folder = Dir.mktmpdir("streams", FOLDER)
        File.mkfifo(pipe_path)
        # The pipe is open for writing too, so that reading does not end when the consumer closes it.
        @pipe = File.open(pipe_path, "r+")
      end

      # @return [String] the log's address
      def url = @log == :kafka ? Kafka.shared.url : "log://#{@folder}/log"

      # @return [Hash{Symbol => Object}] the client's result
      def ask(*words)
        client.puts(words.join(" "))
        line = Timeout.timeout(LIMIT_S) { client.gets } or raise "the client has ended; see what it wrote above"
        JSON.parse(line, symbolize_names: true)
      end

      # @return [String] the name of a new topic
      def fresh_topic(partitions) = "bench-#{SecureRandom.hex(4)}".tap { |name| ask("create", name, partitions) }

      # @return [String] the name of a new group
      def fresh_group = "bench-#{SecureRandom.hex(4)}"

      # Starts a server, which reports at each goal.
      #
      # @param server [ChatonStreams]
      # @param goals [Array<Integer>] numbers of records consumed since the previous goal
      # @param env [Hash{String => String}]
      # @return [ChatonStreams]
      def serve(server, goals, env = {})
        @server = server
        server.start(@folder, url, env.merge("BENCH_GOALS" => goals.join(","), "BENCH_PIPE" => pipe_path))
      end

      # Waits for the next goal.
      #
      # @return [Hash{Symbol => Object}] the consumer's report, see apps/tally.rb
      def wait_for_goal(limit_s = LIMIT_S)
        deadline = now_s + limit_s
        until @pipe.wait_readable(PROBE_EVERY_S)
          raise "the server has ended:\n#{server.log}" if server.ended?
          raise "the server has not consumed everything within #{limit_s} s:\n#{server.log}" if now_s > deadline
        end
        JSON.parse(@pipe.gets, symbolize_names: true)
      end

      # @return [Array<Integer>] the server's processes
      def pids = server.tree.pids

      def close
        @server&.stop
        @client&.close
        @pipe.close
        FileUtils.rm_rf(@folder)
      end

      def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      private

      def pipe_path = File.join(@folder, "pipe")

      def client
        @client ||= begin
          folder = File.join(@folder, "client").tap { |path| FileUtils.mkdir_p(path) }
          env, *words = ChatonStreams.new.client(folder, url)
          IO.popen([env, *words], "r+", chdir: folder, pgroup: true)
        end
      end
    end
  end
end
