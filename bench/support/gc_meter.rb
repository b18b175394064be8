# frozen_string_literal: true

require "json"

module Bench
  # Rack middleware for any server. It measures the time that collections take while a request is in the application,
  # and `GET /gc` returns it. A collection during several requests counts once.
  #
  # GC.total_time is processor time of the collecting thread (measured), in nanoseconds.
  class GcMeter
    PATH = "/gc"
    JSON_TYPE = { "content-type" => "application/json" }.freeze

    # Wraps a body that is generated while it is sent: the request is in the application until the body is closed.
    class Body
      def initialize(body, meter)
        @body = body
        @meter = meter
      end

      def each(&block)
        @body.each(&block)
      end

      def close
        @body.close if @body.respond_to?(:close)
      ensure
        @meter.leave
      end
    end

    def initialize(app)
      @app = app
      @requests = @active = 0
      @inside_ns = @minor = @major = 0
      read_counts
    end

    # @return [Array] Rack's response
    def call(env)
      return report if env["PATH_INFO"] == PATH
      enter
      status, headers, body = @app.call(env)
      inside = !body.respond_to?(:to_ary)
      [status, headers, inside ? Body.new(body, self) : body]
    ensure
      leave unless inside || env["PATH_INFO"] == PATH
    end

    # Ends a request.
    def leave
      return unless (@active -= 1).zero?
      @inside_ns += GC.total_time - @from_ns
      return if GC.count == @seen
      minor = @seen_minor
      major = @seen_major
      read_counts
      @minor += @seen_minor - minor
      @major += @seen_major - major
    end

    private

    def enter
      @requests += 1
      return unless (@active += 1) == 1
      read_counts unless GC.count == @seen
      @from_ns = GC.total_time
    end

    # Reads the counts by kind, which costs more than GC.count: so it happens only after a collection.
    def read_counts
      @seen = GC.count
      @seen_minor = GC.stat(:minor_gc_count)
      @seen_major = GC.stat(:major_gc_count)
    end

    def report
      stat = GC.stat
      [200, JSON_TYPE.dup,
       [JSON.generate(pid: Process.pid, requests: @requests, inside_ns: @inside_ns, minor_inside: @minor,
                      major_inside: @major, total_ns: GC.total_time, minor: stat[:minor_gc_count],
                      major: stat[:major_gc_count], allocated: stat[:total_allocated_objects],
                      live_slots: stat[:heap_live_slots], old_objects: stat[:old_objects],
                      heap_pages: stat[:heap_allocated_pages])]]
    end
  end
end
