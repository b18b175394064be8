# frozen_string_literal: true

require "delegate"

# A native batch, with what an engine would know of it.
class FakeBatch < SimpleDelegator
  FACTS = { kind: :records, route: 0, generation: 1, lane: 0, attempt: 1, end_offset: nil, verdict: [:done],
            revoked?: false }.freeze

  # @return [Array] how it was ended
  attr_reader :outcomes

  def initialize(batch, **facts)
    super(batch)
    @facts = FACTS.merge(facts)
    @outcomes = []
  end

  FACTS.each_key { |name| define_method(name) { @facts.fetch(name) } }

  def open? = @outcomes.empty?

  def done = finish(:done, [:done])

  def failed(name, message) = finish([:failed, name, message], verdict)

  def abandon = finish(:abandoned, nil)

  def outcome = @outcomes.last

  def transact(rows, through)
    @transacted = [rows, through]
    nil
  end
  attr_reader :transacted

  private

  def finish(outcome, answer)
    raise "ended twice: #{@outcomes}" unless open?

    @outcomes << outcome
    answer
  end
end
