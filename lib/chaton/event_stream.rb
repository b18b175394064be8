# frozen_string_literal: true

require_relative "live"

module Chaton
  # Open streams of server-sent events (`EventSource` in browsers). The application decides who may read what, and its
  # thread is free then: Rust holds the connection and sends what {Live::Broadcasting#broadcast Chaton.broadcast} says.
  #
  # @example In Rack
  #   run ->(env) { Chaton::EventStream.response(env, "orders/7") }
  # @example In the browser
  #   new EventSource("/orders/7/events").onmessage = (event) => show(JSON.parse(event.data))
  module EventStream
    # Proxies must neither store, compress nor collect the events.
    HEADERS = { "content-type" => "text/event-stream", "cache-control" => "no-cache, no-transform",
                "x-accel-buffering" => "no" }.freeze
    # Names of one stream: a page shows hardly more.
    NAMES_MAX = 64
    private_constant :HEADERS

    # The body of the response, which only Chaton's web server can send.
    class Body
      # @return [Array<String>]
      # @private
      attr_reader :event_stream_names
      # @return [Float, nil]
      # @private
      attr_reader :max_age_s

      # @param names [Array<String>]
      # @param max_age_s [Float, nil]
      # @private
      def initialize(names, max_age_s)
        @event_stream_names = names
        @max_age_s = max_age_s
      end

      # @raise [Error] from a server that is not Chaton
      def call(_stream)
        raise Error, "an event stream is sent by Chaton's web server only; start the application with `chaton`"
      end
    end

    # The response to a request for events. The names are those of the messages, and the application's matter: check
    # before that the user may read them.
    #
    # @param _env [Hash] of the request
    # @param names [Array<String, Symbol>] one or several
    # @param max_age [Numeric, nil] seconds after which the client has to ask the application again, which it does by
    #   itself; until then it comes back without the application
    # @param headers [Hash{String=>String}] further ones
    # @return [Array(Integer, Hash, Body)] for Rack
    # @raise [ArgumentError]
    def self.response(_env, *names, max_age: nil, headers: {})
      names = names.flatten.map(&:to_s).uniq
      unless names.size.between?(1, NAMES_MAX)
        raise ArgumentError, "an event stream has 1 to #{NAMES_MAX} names, not #{names.size}"
      end

      bad = names.find { |name| name.empty? || name.bytesize > 255 || name.match?(/[\r\n\0]/) }
      raise ArgumentError, "this cannot be the name of an event stream: #{bad.inspect}" if bad

      [200, HEADERS.merge(headers), Body.new(names, max_age&.to_f)]
    end

    # Closes all streams of a name at once, in all workers. Their clients come back, and the application decides again:
    # answer them 204, and browsers stay away.
    #
    # @example
    #   Chaton::EventStream.disconnect("user/7")
    # @param name [String, Symbol]
    # @raise [ArgumentError, StoreError]
    def self.disconnect(name)
      Live.client.disconnect(name.to_s)
      nil
    end
  end
end
