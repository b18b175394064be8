# frozen_string_literal: true

require "delegate"

# A native batch, with what an engine would know of it.
class FakeTurn < SimpleDelegator
  FACTS = { kind: :records, route: 0, generation: 1, strand: 0, attempt: 1, end_offset: nil, verdict: [:done],
            revoked?: false }.freeze

  # @return [Array] how it was ended
  attr_reader :endings

  def initialize(batch, **facts)
    super(batch)
    @facts = FACTS.merge(facts)
    @endings = []
  end

  FACTS.each_key { |name| define_method(name) { @facts.fetch(name) } }

  def open? = @endings.empty?

  def done = finish(:done, [:done])

  def failed(name, message) = finish([:failed, name, message], verdict)

  def abandon = finish(:abandoned, nil)

  def ending = @endings.last

  def transact(rows, through)
    @transacted = [rows, through]
    nil
  end
  attr_reader :transacted

  private

  def finish(ending, answer)
    raise "ended twice: #{@endings}" unless open?

    @endings << ending
    answer
  end
end
