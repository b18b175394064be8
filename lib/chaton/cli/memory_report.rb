# frozen_string_literal: true

require_relative "../memory/launch"

module Chaton
  class CLI
    # Prints the allocator and heap settings with which a server would start, and why.
    class MemoryReport
      def initialize(plan, launch_settings)
        @plan = plan
        @launch_settings = launch_settings
      end

      def to_s = "\nMemory at the start\n#{lines.map { |line| "  #{line}\n" }.join}"

      private

      def lines
        reason = Memory::Launch.refusal(@plan)
        reason ? ["allocator and heap sizes are unchanged: #{reason}"] : [*allocator, *heap]
      end

      def allocator = [@launch_settings.allocator.to_s, *set { |name| !name.match?(Memory::LaunchSettings::HEAP) }]

      def heap
        settings = @launch_settings
        from = settings.entry ? "sized by the last start, #{settings.age} ago" : settings.problem || "first start"
        kept = settings.left_alone
        ["heap: #{from}", *settings.heap.why.map { |why| "  #{why}" },
         *set { |name| name.match?(Memory::LaunchSettings::HEAP) },
         *("  left as you set them: #{kept.join(", ")}" unless kept.empty?)]
      end

      def set(&wanted)
        @launch_settings.variables.select { |name, _| wanted.call(name) }.map { |name, value| "  #{name}=#{value}" }
      end
    end
  end
end
