# frozen_string_literal: true

require_relative "../support/case_run"
require_relative "normalizer"
require_relative "visitor"

module Bench
  module Apps
    # Compares every response of each server to those of the first one, Puma. The last server is Puma again: what is
    # different there is no server's doing.
    class Answers < Bench::CaseRun
      # So many differences are kept.
      SHOWN_MAX = 20

      private

      def facts = {}

      def measure(server)
        answers = tour(server)
        @expected ||= answers
        different = (@expected.keys | answers.keys).filter_map { |name| pair(name, @expected[name], answers[name]) }
        { responses: answers.size, different: different.size, differences: different.first(SHOWN_MAX) }
      end

      def pair(name, one, other)
        return [name, "only one server was asked"] unless one && other
        [name, *Normalizer.difference(one, other)] unless one == other || Normalizer.piece?(one, other)
      end

      # @return [Hash{Array => Hash}] by name and how often the name has come before
      def tour(server)
        server.start
        visitor = Visitor.new(server.port)
        seen = Hash.new(0)
        @case.tour.new(visitor).call.to_h { |answer| [[answer.name, seen[answer.name] += 1], Normalizer.call(answer)] }
      ensure
        visitor&.close
        server.stop
      end
    end
  end
end
