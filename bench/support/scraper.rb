# frozen_string_literal: true

require "io/wait"
require "socket"

module Bench
  # Reads /metrics each second, as Prometheus may, with a connection for each time.
  class Scraper
    EVERY_S = 1.0
    REQUEST = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

    # @param path [String] of the Unix socket of the admin endpoint
    def initialize(path)
      @path = path
    end

    # Scrapes while the block runs, first at once.
    #
    # @return [Object] what the block returns
    # @raise [RuntimeError] when a scrape failed, because the slice then measures nothing
    def during
      over, finish = IO.pipe
      thread = Thread.new { each_second(over) }
      thread.report_on_exception = false
      begin
        result = yield
      ensure
        finish.close
        failure = wait_for(thread)
        over.close
      end
      raise failure if failure
      result
    end

    private

    def each_second(over)
      loop do
        scrape
        break if over.wait_readable(EVERY_S)
      end
    end

    # @return [RuntimeError, SystemCallError, nil]
    def wait_for(thread)
      thread.join
      nil
    rescue RuntimeError, SystemCallError => e
      e
    end

    def scrape
      answer = UNIXSocket.open(@path) do |socket|
        socket.write(REQUEST)
        socket.read
      end
      whole = answer.start_with?("HTTP/1.1 200") && answer.end_with?("# EOF\n")
      raise "the scrape failed: #{answer[0, 200]}" unless whole
    end
  end
end
