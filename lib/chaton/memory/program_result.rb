# frozen_string_literal: true

module Chaton
  module Memory
    # The end of a {Program}, its times and its peak memory. `ruby` holds the figures of the collector if it was a Ruby
    # that was not killed.
    ProgramResult = Struct.new(:status, :wall_s, :user_s, :system_s, :peak_bytes, :ruby, keyword_init: true) do
      # After fewer collections it is not known which objects stay alive.
      const_set(:COLLECTIONS_MIN, 5)

      # @param line [String, nil] as program_preload.rb writes it
      # @return [Hash{Symbol=>Object}, nil] pid, ruby, collections, full, time_ns, live, old, peak_kib, pools
      def self.figures(line)
        found = line.to_s.scan(/(\w+)=(\S*)/).to_h
        return unless found.size == 9

        { **found.slice("pid", "collections", "full", "time_ns", "live", "old", "peak_kib").transform_values(&:to_i),
          "ruby" => found["ruby"], "pools" => found["pools"].split(",").map { |pool| pool.split("/").map(&:to_i) } }
          .transform_keys(&:to_sym)
      end

      # @return [Integer] as a shell reports it
      def exit_code = status.exitstatus || (128 + status.termsig)

      # @return [String] how it ended
      def ending = status.exited? ? "status #{status.exitstatus}" : "signal #{Signal.signame(status.termsig)}"

      # Counts old objects only, because young ones may be garbage.
      #
      # @return [Hash{Symbol=>Object}, nil] see {HeapReading}
      def reading
        return if ruby.nil? || ruby[:collections] < self.class::COLLECTIONS_MIN || ruby[:old].zero?

        pools = ruby[:pools].empty? ? [[40, ruby[:live]]] : ruby[:pools]
        stays = ruby[:old].fdiv([pools.sum(&:last), 1].max)
        { ruby: ruby[:ruby], live_slots: ruby[:old], old_objects: ruby[:old],
          pools: pools.map { |size, live| [size, (live * stays).ceil] } }
      end
    end
  end
end
