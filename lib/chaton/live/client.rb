# frozen_string_literal: true

require "json"

module Chaton
  module Live
    # The native hub of a process. A forked child makes its own.
    class Client
      def initialize(settings)
        require_relative "../native"
        @document = settings.document
        @lock = Mutex.new
        @native = Native::Live.new(@document)
      end

      # @param begins_at [Integer, nil] what {#begin} returned, for a piece of a text
      # @return [Boolean] whether the message was added
      def append(name, data, event, key, begins_at = nil)
        native.append(name, data, event, key, begins_at)
      rescue ForkedError
        renew
        retry
      end

      # Begins a text. Pieces of the one before it are not added any more.
      #
      # @return [Integer] where it begins
      def begin(name)
        native.begin(name)
      rescue ForkedError
        renew
        retry
      end

      # @param request [Native::Request] is answered with the events of these names
      # @param options [Array(String, Boolean, Float, Boolean)] see {EventStream::Body}
      # @return [Boolean] false when the headers cannot be sent
      def stream(request, status, headers, names, options)
        native.stream(request, status, headers, names, options)
      rescue ForkedError
        renew
        retry
      end

      # @return [Array(Integer, Integer)] the position behind the newest message
      def end
        native.end
      rescue ForkedError
        renew
        retry
      end

      # @return [String] the signed position of a page
      def page_id(names, at)
        native.page_id(names, at)
      rescue ForkedError
        renew
        retry
      end

      # @param name [String] all of its streams are closed
      def disconnect(name)
        native.disconnect(name)
      rescue ForkedError
        renew
        retry
      end

      # @param engine [Native::Web] whose clients come back without Ruby
      def attach(engine) = native.attach(engine)

      # Ends the hub's thread.
      def stop
        @native.stop
      rescue ForkedError
        nil
      end

      private

      attr_reader :native

      def renew
        former = @native
        @lock.synchronize { @native = Native::Live.new(@document) if @native.equal?(former) }
      end
    end
  end
end
