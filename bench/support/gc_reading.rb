# frozen_string_literal: true

require "json"
require "net/http"
require_relative "gc_meter"

module Bench
  # Reads the GcMeter of a running application.
  module GcReading
    # A busy server responds only after the requests before this one.
    TIMEOUT_S = 60

    module_function

    # @param server [Server]
    # @return [Hash{Symbol => Integer}]
    def of(server)
      uri = URI(server.url(GcMeter::PATH))
      response = Net::HTTP.start(uri.host, uri.port, read_timeout: TIMEOUT_S) { |http| http.get(uri.path) }
      raise "#{server.label} responded to #{uri} with #{response.code}" unless response.is_a?(Net::HTTPSuccess)
      JSON.parse(response.body, symbolize_names: true)
    end

    # @return [Hash{Symbol => Numeric}] the change between two readings; times and objects are per request
    def between(earlier, later)
      change = later.merge(earlier) { |_, new, old| new - old }
      requests = [change[:requests], 1].max
      { gc_us: (change[:inside_ns] / 1000.0 / requests).round(3),
        gc_total_us: (change[:total_ns] / 1000.0 / requests).round(3),
        minor: change[:minor], major: change[:major], minor_inside: change[:minor_inside],
        major_inside: change[:major_inside], objects: (change[:allocated] / requests.to_f).round(1),
        live_slots: later[:live_slots], old_objects: later[:old_objects], requests: change[:requests] }
    end
  end
end
