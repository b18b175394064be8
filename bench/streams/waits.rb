# frozen_string_literal: true

require_relative "stage"

module Bench
  module Streams
    # Measures how often the engine's thread wakes up while ten batches wait for IO at once, and how much CPU it
    # spends. Each batch is one record of one partition, and a loop is one batch of each partition, so that the number
    # of records gives the number of loops. Wake-ups are the voluntary context switches of the thread.
    class Waits
      # Names of the engine's threads, and of the driver's.
      ENGINE = /\Achaton streams/
      DRIVER = /\Ardk:/

      # @param a_case [Case]
      def initialize(a_case)
        @case = a_case
        @partitions = a_case.threads.first
      end

      # @param contender [Contender]
      def measure(contender)
        Stage.with(:kafka) do |stage|
          topic = stage.fresh_topic(@partitions)
          records = loops(contender.what) * @partitions
          warm = @partitions * 10
          stage.ask("spread", topic, records + warm, @partitions)
          stage.serve(server(topic, stage), [warm, records], "BENCH_NAP_MS" => contender.what.to_s)
          stage.wait_for_goal
          before = reading(stage)
          report = stage.wait_for_goal
          figures(before, reading(stage), report)
        end
      end

      private

      def server(topic, stage)
        server = ChatonStreams.new(threads: @partitions, consumer: "Waiting", routes: ", batch: 1")
        server.reading([topic], stage.fresh_group)
      end

      # As many as fill the time, up to the case's limit.
      def loops(nap_ms) = [@case.records, nap_ms.zero? ? @case.records : @case.seconds * 1000 / nap_ms].min

      # @return [Hash{String => Hash}] voluntary context switches and processor time by thread
      def reading(stage)
        tasks = stage.pids.flat_map { |pid| Dir.glob("/proc/#{pid}/task/*") }
        tasks.to_h do |task|
          name = File.read("#{task}/comm").chomp
          [task, { name:, wakeups: File.read("#{task}/status")[/^voluntary_ctxt_switches:\s+(\d+)/, 1].to_i,
                   cpu_s: File.read("#{task}/schedstat").to_i / 1e9 }]
        end
      end

      def figures(before, after, report)
        loops = report[:batches] / @partitions.to_f
        seconds = (report[:to_ns] - report[:from_ns]) / 1e9
        engine, driver = [ENGINE, DRIVER].map { |pattern| spent(before, after, pattern) }
        raise "there is no thread of the engine among #{after.values.map { |one| one[:name] }.uniq}" if engine.nil?
        { wakeups_per_loop: (engine[:wakeups] / loops).round(3), waiting_share: (engine[:cpu_s] / seconds).round(5),
          driver_wakeups_per_loop: ((driver || engine)[:wakeups] / loops).round(3),
          driver_share: ((driver || engine)[:cpu_s] / seconds).round(5), loops: loops.round, seconds: seconds.round(3),
          process_share: (report[:cpu_s] / seconds).round(4) }
      end

      def spent(before, after, pattern)
        found = after.select { |_, one| one[:name].match?(pattern) }
        return if found.empty?
        %i[wakeups cpu_s].to_h do |metric|
          [metric, found.sum { |task, one| one[metric] - (before.dig(task, metric) || 0) }]
        end
      end
    end
  end
end
