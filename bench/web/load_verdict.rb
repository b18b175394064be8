# frozen_string_literal: true

require_relative "../support/verdict"

module Bench
  module Web
    # The verdict on a case under load: figures are compared by the ratio of their medians, and the row of a server that
    # returned errors falls short, however fast the server was.
    class LoadVerdict < Verdict
      # @return [Array<(String, Hash)>, nil] the peer that served most requests
      def fastest_peer = peers.max_by { |_, figures| figures["rps"] }

      # @return [Float] the figure that the bar is compared with
      def figure(bar)
        metric = bar.metric.to_s
        case bar.against
        when nil then own[metric]
        when :pairs then ratio_of_rounds(metric, *medians.keys.first(2))
        when :fastest then ratio(own[metric], fastest_peer.last[metric])
        else ratio(own[metric], peers.dig(best_peer(metric), metric))
        end
      end

      def met? = super && own.fetch("errors", 0).zero?
    end
  end
end
