# frozen_string_literal: true

# A body that counts how often it was closed.
class CountedBody
  attr_reader :closed

  def initialize(*chunks, fail_after: nil)
    @chunks = chunks
    @fail_after = fail_after
    @closed = 0
  end

  def each
    @chunks.each_with_index do |chunk, index|
      raise "body broke" if index == @fail_after

      yield chunk
    end
  end

  def close = @closed += 1
end
