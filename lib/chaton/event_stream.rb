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
    autoload :Tokens, "chaton/event_stream/tokens"

    # Proxies must neither store, compress nor collect the events.
    HEADERS = { "content-type" => "text/event-stream", "cache-control" => "no-cache, no-transform",
                "x-accel-buffering" => "no" }.freeze
    # Names of one stream: a page shows hardly more.
    NAMES_MAX = 64
    # The position of a page, in the query string.
    PAGE_ID = /(?:\A|&)position=([\w-]{1,256})(?:&|\z)/
    # There, what a page does that has missed messages.
    REFRESHES = /(?:\A|&)gap=refresh(?:&|\z)/
    private_constant :HEADERS, :PAGE_ID, :REFRESHES

    # The body of the response, which only Chaton's web server can send.
    class Body
      # @return [Array<String>]
      # @private
      attr_reader :event_stream_names
      # @return [Array(String, Boolean, Float, Boolean)] position of the page, whether the history is wanted, maximum
      #   age, whether Turbo loads the page again at a gap
      # @private
      attr_reader :event_stream_options

      # @param names [Array<String>]
      # @param options [Array(String, Boolean, Float, Boolean)]
      # @private
      def initialize(names, options)
        @event_stream_names = names
        @event_stream_options = options
      end

      # @raise [Error] from a server that is not Chaton
      def call(_stream)
        raise Error, "an event stream is sent by Chaton's web server only; start the application with `chaton`"
      end
    end

    # The response to a request for events. The names are those of the messages, and the application's matter: check
    # before that the user may read them.
    #
    # @param env [Hash] of the request
    # @param names [Array<String, Symbol, #to_param>] one or several; of a record, its own: `orders/7`
    # @param max_age [Numeric, nil] seconds after which the client has to ask the application again, which it does by
    #   itself; until then it comes back without the application
    # @param history [Boolean] whether a new client first gets the messages of these names that are kept
    # @param headers [Hash{String=>String}] further ones
    # @return [Array(Integer, Hash, Body)] for Rack
    # @raise [ArgumentError]
    def self.response(env, *names, max_age: nil, history: false, headers: {})
      query = env["QUERY_STRING"].to_s
      options = [query[PAGE_ID, 1], history ? true : false, max_age&.to_f, query.match?(REFRESHES)]
      [200, HEADERS.merge(headers), Body.new(names_of(names), options)]
    end

    # A position for the address of the stream, in its parameter `position`: the client gets what is said after the page
    # was made. It permits nothing by itself.
    #
    # @param names [Array<String, Symbol, #to_param>] those of the stream, in the same order
    # @param at [Object, nil] what {now} returned before the page's data were read; nil: as early as possible
    # @return [String] of letters, digits, `-` and `_`
    # @raise [ArgumentError, StoreError]
    def self.position(*names, at: nil) = Live.client.page_id(names_of(names), at)

    # @return [Object] the present moment, for {position}
    # @raise [StoreError]
    def self.now = Live.client.end

    # Says the pieces of a text as they come, such as the answer of a language model in a job. Pieces that come fast are
    # put together. A page that is loaded later gets all of it by `response(env, name, history: true)`.
    #
    # The stream begins with the event `reset`, so that a job that runs again begins anew; what a former run still
    # says is not sent any more ({Tokens#superseded?}). It ends with `end`, or with `failed` if the block raises an
    # error. Pieces are plain messages.
    #
    # @example
    #   Chaton::EventStream.open("answers/#{id}") { |stream| llm.chat(question) { |token| stream << token } }
    # @param name [String, Symbol, #to_param]
    # @yieldparam stream [Tokens]
    # @return [Object] of the block
    # @raise [ArgumentError, StoreError]
    def self.open(name, &block)
      Tokens.new(names_of([name]).first).run(&block)
    end

    # @return [Array<String>] checked
    # @raise [ArgumentError]
    # @private
    def self.names_of(names)
      names = names.flatten.map { |name| name_of(name) }.uniq
      unless names.size.between?(1, NAMES_MAX)
        raise ArgumentError, "an event stream has 1 to #{NAMES_MAX} names, not #{names.size}"
      end

      bad = names.find { |name| name.empty? || name.bytesize > 255 || name.match?(/[\r\n\0]/) }
      raise ArgumentError, "this cannot be the name of an event stream: #{bad.inspect}" if bad

      names
    end

    # @param name [String, Symbol, #to_param]
    # @return [String]
    # @private
    def self.name_of(name)
      name.respond_to?(:model_name) ? "#{name.model_name.plural}/#{name.to_param}" : name.to_s
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
