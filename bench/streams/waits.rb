# frozen_string_literal: true

require_relative "stage"

module Bench
  module Streams
    # Ten units of work at once, each waiting for some IO: how often whoever waits for them is woken, and what that
    # costs. A unit is a batch of a partition, a loop is as many as there are partitions; a record is a batch, so that a
    # drained topic says how many there were. Sleeps of a thread are the kernel's count of its voluntary switches.
    class Waits
      # The engine's threads by name, and the driver's.
      ENGINE = /\Achaton streams/
      DRIVER = /\Ardk:/
      # Loops of a nap this long are few enough to be counted from the start of the process.
      PROBE_EVERY_S = 0.05

      # @param a_case [Case]
      def initialize(a_case)
        @case = a_case
        @units = a_case.threads.first
      end

      # @param contender [Contender]
      # @return [Hash{Symbol => Object}]
      def measure(contender)
        Stage.with(:kafka) do |stage|
          topic = stage.fresh_topic(@units)
          records = loops(contender.what) * @units
          warm = @units * 10
          stage.ask("spread", topic, records + warm, @units)
          stage.serve(server(topic, stage), [warm, records], "BENCH_NAP_MS" => contender.what.to_s)
          stage.told
          before = reading(stage)
          told = stage.told
          figures(before, reading(stage), told)
        end
      end

      private

      def server(topic, stage)
        server = ChatonStreams.new(threads: @units, consumer: "Waiting", routes: ", batch: 1")
        server.reading([topic], stage.fresh_group)
      end

      # As many as fill the time, and no more than there are to be.
      def loops(nap_ms) = [@case.records, nap_ms.zero? ? @case.records : @case.seconds * 1000 / nap_ms].min

      # @return [Hash{String => Hash}] sleeps and processor time by thread, of the engine and of the driver
      def reading(stage)
        tasks = stage.pids.flat_map { |pid| Dir.glob("/proc/#{pid}/task/*") }
        tasks.to_h do |task|
          name = File.read("#{task}/comm").chomp
          [task, { name:, sleeps: File.read("#{task}/status")[/^voluntary_ctxt_switches:\s+(\d+)/, 1].to_i,
                   cpu_s: File.read("#{task}/schedstat").to_i / 1e9 }]
        end
      end

      def figures(before, after, told)
        loops = told[:batches] / @units.to_f
        seconds = (told[:to_ns] - told[:from_ns]) / 1e9
        engine, driver = [ENGINE, DRIVER].map { |pattern| spent(before, after, pattern) }
        raise "no thread of the engine's was seen among #{after.values.map { |one| one[:name] }.uniq}" if engine.nil?
        { wakeups_per_loop: (engine[:sleeps] / loops).round(3), waiting_share: (engine[:cpu_s] / seconds).round(5),
          driver_wakeups_per_loop: ((driver || engine)[:sleeps] / loops).round(3),
          driver_share: ((driver || engine)[:cpu_s] / seconds).round(5), loops: loops.round, seconds: seconds.round(3),
          process_share: (told[:cpu_s] / seconds).round(4) }
      end

      def spent(before, after, pattern)
        found = after.select { |_, one| one[:name].match?(pattern) }
        return if found.empty?
        %i[sleeps cpu_s].to_h do |metric|
          [metric, found.sum { |task, one| one[metric] - (before.dig(task, metric) || 0) }]
        end
      end
    end
  end
end
