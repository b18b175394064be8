# frozen_string_literal: true

require_relative "../memory/launch"

module Chaton
  class CLI
    # Prints the allocator and heap settings with which a server would start, and why.
    class MemoryReport
      def initialize(plan, provision)
        @plan = plan
        @provision = provision
      end

      def to_s = "\nMemory at the start\n#{[*refusal, *allocator, *heap].map { |line| "  #{line}\n" }.join}"

      private

      def refusal
        reason = Memory::Launch.refusal(@plan)
        reason && "none of this is applied: #{reason}"
      end

      def allocator = [@provision.allocator.to_s, *set { |name| !name.match?(Memory::Provision::HEAP) }]

      def heap
        from = @provision.entry ? "sized by the last start, #{@provision.age} ago" : @provision.problem || "first start"
        kept = @provision.theirs
        ["heap: #{from}", *@provision.heap.why.map { |why| "  #{why}" },
         *set { |name| name.match?(Memory::Provision::HEAP) },
         *("  left as you set them: #{kept.join(", ")}" unless kept.empty?)]
      end

      def set(&wanted)
        @provision.variables.select { |name, _| wanted.call(name) }.map { |name, value| "  #{name}=#{value}" }
      end
    end
  end
end
