# frozen_string_literal: true

require "zlib"
require_relative "model"

module Crossings
  # Compares an answer with its verdict.
  class Comparison
    def initialize(one, verdict, answer)
      @one = one
      @verdict = verdict
      @answer = answer
    end

    # @return [Array<String>]
    def problems
      return no_answer unless @answer
      [differs("status", @verdict.status, @answer.status), differs("framing", @verdict.framing, @answer.framing),
       persistence, *headers, dates, ending, *body].compact
    end

    private

    # One that breaks off before its first byte may be reset before its head.
    def no_answer
      @one.http2? && @verdict.ending == :cut ? [] : ["the connection ended without an answer"]
    end

    def differs(what, wanted, found)
      "#{what} is #{found.inspect[0, 120]}, not #{wanted.inspect[0, 120]}" if found != wanted
    end

    def persistence
      differs("persistence", @verdict.persistent, @answer.persistent) unless @verdict.persistent.nil?
    end

    def headers
      @verdict.headers.map do |name, allowed|
        values = @answer.values(name)
        next "#{name} is there #{values.size} times" if values.size > 1
        differs(name, allowed[0], values[0]) unless allowed.include?(values[0])
      end
    end

    # RFC 9110 section 6.6.1
    def dates
      differs("the number of Date", 1, @answer.values("date").size) if @verdict.logged && @answer.status >= 200
    end

    def ending
      return if @one.client == "leaves" || @verdict.ending == :unseen
      differs("the ending", @verdict.ending, @answer.ending)
    end

    # All of it, or what came before its end.
    def body
      return [] unless @answer.body
      found = decoded
      wanted = @answer.framing == :none ? "" : @verdict.text
      return [] if ended? && @verdict.ending == :whole ? found == wanted : wanted.start_with?(found)
      at = (0..).find { |index| found.getbyte(index) != wanted.getbyte(index) }
      ["the body differs at byte #{at} of #{wanted.bytesize}: #{found.byteslice(at, 40).inspect}"]
    rescue Zlib::Error => e
      ["the body is not gzip: #{e.message}"]
    end

    def ended? = @answer.ending == :whole && @one.client != "leaves"

    # What was cut is decoded as far as it goes.
    def decoded
      return @answer.body if @answer["content-encoding"] != "gzip" || @answer.framing == :none
      inflate = Zlib::Inflate.new(16 + Zlib::MAX_WBITS)
      text = inflate.inflate(@answer.body)
      raise Zlib::Error, "it does not end with the body" if ended? && @verdict.ending == :whole && !inflate.finished?
      raise Zlib::Error, "something follows it" if inflate.finished? && inflate.total_in != @answer.body.bytesize
      text
    end
  end
end
