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
    # What one slice is measured with: a log, a client that produces, and a server that tells when it has consumed.
    class Stage
      # On a disk, where a durable log has to wait for it.
      PLACE = File.expand_path("../../tmp/bench", __dir__)
      ANSWER_LIMIT_S = 300
      PROBE_EVERY_S = 0.5
      # Topics that were filled, and stay for whoever reads the same.
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

        # @return [Array<String>] topics on the shared Kafka, filled once in a run
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
        FileUtils.mkdir_p(PLACE)
        @folder = Dir.mktmpdir("streams", PLACE)
        File.mkfifo(pipe_path)
        # Open for writing too, it has no end when the consumer closes it.
        @pipe = File.open(pipe_path, "r+")
      end

      # @return [String] of the log
      def url = @log == :kafka ? Kafka.shared.url : "log://#{@folder}/log"

      # @return [Hash{Symbol => Object}] the client's answer
      def ask(*words)
        client.puts(words.join(" "))
        line = Timeout.timeout(ANSWER_LIMIT_S) { client.gets } or raise "the client has ended; see what it wrote above"
        JSON.parse(line, symbolize_names: true)
      end

      # @return [String] the name of a topic that is empty
      def fresh_topic(partitions) = "bench-#{SecureRandom.hex(4)}".tap { |name| ask("create", name, partitions) }

      # @return [String] the name of a group that has read nothing
      def fresh_group = "bench-#{SecureRandom.hex(4)}"

      # Starts a server, which tells when it has consumed so many records.
      #
      # @param server [ChatonStreams]
      # @param goals [Array<Integer>] each the number since the last one
      # @param env [Hash{String => String}]
      # @return [ChatonStreams]
      def serve(server, goals, env = {})
        @server = server
        server.start(@folder, url, env.merge("BENCH_GOALS" => goals.join(","), "BENCH_PIPE" => pipe_path))
      end

      # Waits for the next goal.
      #
      # @return [Hash{Symbol => Object}] what the consumer says, see apps/tally.rb
      def told(limit_s = ANSWER_LIMIT_S)
        deadline = now_s + limit_s
        until @pipe.wait_readable(PROBE_EVERY_S)
          raise "the server has ended:\n#{server.log}" if server.ended?
          raise "the server has not consumed everything within #{limit_s} s:\n#{server.log}" if now_s > deadline
        end
        JSON.parse(@pipe.gets, symbolize_names: true)
      end

      # @return [Array<Integer>] the server's processes
      def pids = server.tree.pids

      # @return [void]
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
          place = File.join(@folder, "client").tap { |path| FileUtils.mkdir_p(path) }
          env, *words = ChatonStreams.new.client(place, url)
          IO.popen([env, *words], "r+", chdir: place, pgroup: true)
        end
      end
    end
  end
end
