# frozen_string_literal: true

# Says numbered messages with the time at which they are said, as clients.rs reads them.
class Speaker
  # @yieldparam stream [Integer]
  # @yieldparam text [String]
  def initialize(&send)
    @send = send
    @next = Hash.new(-1)
  end

  # @param query [String] "COUNT&STREAMS&RATE": so many messages, to one stream after the other, so many a second; 0: at
  #   once
  # @return [String] the seconds that it took
  def say(query)
    count, streams, rate = query.split("&").map(&:to_i)
    began = now_s
    count.times do |at|
      wait = rate.zero? ? 0 : began + at.fdiv(rate) - now_s
      sleep wait if wait.positive?
      stream = at % streams
      @send.call(stream, "#{@next[stream] += 1} #{Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)}")
    end
    (now_s - began).round(3).to_s
  end

  private

  def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
