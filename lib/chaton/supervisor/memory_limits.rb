# frozen_string_literal: true

require_relative "../errors"
require_relative "../telemetry/size"

module Chaton
  class Supervisor
    # The memory ceilings in bytes: those of the settings, limited by the container's. Pure except for {.read}.
    class MemoryLimits
      # Share of a container that all processes may use: the kernel needs some, and reacting takes time.
      CONTAINER_SHARE = 0.9
      # Ratio of the hard ceiling to the soft one, where none is set.
      HARD_RATIO = 1.5
      # The smallest ratio: with less, a worker is stopped before it can be replaced.
      HARD_RATIO_MIN = 1.1
      # Soft ceilings lie up to this share below the limit, so that workers do not reach theirs at the same time.
      JITTER = 0.10
      # The golden ratio: the fractions of its multiples spread evenly over 0..1, for any number of workers.
      SPREAD = (Math.sqrt(5) - 1) / 2

      WHOLE = "this system does not tell shared from private memory (it has no /proc/PID/smaps_rollup): ceilings " \
              "apply to resident memory, which counts memory that workers share once for each worker"
      private_constant :WHOLE

      # @return [Integer, nil] bytes one worker may use; nil: no ceiling
      attr_reader :worker
      # @return [Integer, nil] bytes at which a worker is stopped at once
      attr_reader :hard
      # @return [Integer, nil] bytes all processes together may use
      attr_reader :tree
      # @return [Integer, nil] bytes the container may use
      attr_reader :container
      # @return [Array<String>] warnings for the user
      attr_reader :warnings

      # @param log [Telemetry::Log] for the warnings
      # @param kernel [#cgroup, #process] reads the container's limit
      # @return [MemoryLimits] on this machine
      def self.read(settings, log:, kernel: Native::Memory)
        limits = new(settings, container: kernel.cgroup&.fetch(:limit), parts: !kernel.process(Process.pid).nil?)
        limits.warnings.each { |sentence| log.warn(sentence) }
        shown = limits.to_h.compact.transform_values { |bytes| Telemetry::Size.of(bytes) }
        log.info("memory ceilings", **shown) if limits.on?
        limits
      end

      # @param container [Integer, nil] limit of the control group, where it is below the machine's memory
      # @param parts [Boolean] whether the kernel tells shared from private memory
      def initialize(settings, container: nil, parts: true)
        @container = container
        @room = container && (container * CONTAINER_SHARE).floor
        @warnings = []
        @worker = smaller_of("limit", settings.limit)
        @tree = settings.limit_tree == :auto ? @room : smaller_of("limit_tree", settings.limit_tree)
        @hard = settings.limit_hard || (@worker && (@worker * HARD_RATIO).floor)
        @hard = [@hard, (@worker * HARD_RATIO_MIN).floor].max if @hard && @worker
        @warnings << WHOLE if on? && !parts
      end

      def on? = !(@worker || @hard || @tree).nil?

      # @param index [Integer] number of a worker
      # @return [Integer, nil] bytes at which this worker is recycled
      def soft(index)
        @worker && (@worker * (1 - (JITTER * ((index * SPREAD) % 1.0)))).floor
      end

      # @param need [Integer] bytes that a worker needs at least
      # @return [String, nil] why it cannot work at all; nil when it fits
      def refusal(need, ceiling = @worker)
        return if ceiling.nil? || need < ceiling

        "memory limit #{size(@worker)} #{need < @worker ? "leaves nothing above" : "is below"} what the application " \
          "needs after loading: #{size(need)}; raise `limit` in `memory { }` (twice that is a good start), or load less"
      end

      # @param need [Integer] bytes, above the hard ceiling, of a worker that is not ready yet
      # @return [String] why it cannot work at all
      def refusal_of_boot(need)
        "memory limit_hard #{size(@hard)} is below what the application needs while it is loading: #{size(need)}; " \
          "raise `limit_hard` in `memory { }` (without it, `limit`: #{HARD_RATIO} times that counts), or load less"
      end

      # Called before the first fork.
      #
      # @param loaded [Integer, nil] bytes of this process, with the application loaded
      # @param sharers [Integer] processes that will share them
      # @raise [ConfigError] when the share alone is above the ceiling
      def check(loaded, sharers: 1)
        sentence = loaded && refusal(loaded / sharers)
        raise ConfigError, sentence if sentence
      end

      # @return [Hash{Symbol=>Integer, nil}] bytes, for `status`
      def to_h = { limit: @worker, limit_hard: @hard, limit_tree: @tree, container: @container }

      private

      # A ceiling above the container's would never be reached: the kernel kills the process first.
      def smaller_of(name, bytes)
        return unless bytes.is_a?(Integer)
        return bytes if @room.nil? || bytes <= @room

        @warnings << "#{name} #{size(bytes)} is more than the container leaves (#{size(@room)}, 0.9 of its limit " \
                     "#{size(@container)}): #{size(@room)} applies. Lower #{name}, or raise the container's limit"
        @room
      end

      def size(bytes) = Telemetry::Size.of(bytes)
    end
  end
end
