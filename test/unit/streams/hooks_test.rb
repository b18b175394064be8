# frozen_string_literal: true

require_relative "support/streams_unit_case"

# The instances of a consumer: whose they are, what they are told, and when they are let go.
class StreamsHooksTest < StreamsUnitCase
  # Notes what it is told, under a name of its own.
  class Told < Chaton::Consumer
    class << self
      attr_accessor :seen
    end

    def consume(batch) = note(batch.values)
    def revoked = note(:revoked)
    def shutdown = note(:shutdown)
    def eof = note(:eof)

    private

    def note(what) = Told.seen << [object_id, what, partition]
  end

  def setup
    super
    Told.seen = []
  end

  def test_an_instance_belongs_to_an_assignment_and_a_lane
    handler = handler(Told)
    [{}, {}, { lane: 1 }, { generation: 2 }].each { |facts| handler.call(fake_batch("a", **facts)) }
    first, again, other, later = Told.seen.map(&:first)
    assert_equal first, again
    assert_equal 3, [first, other, later].uniq.size
  end

  def test_hooks
    handler = handler(Told)
    handler.call(fake_batch(kind: :revoked))
    assert_empty Told.seen, "nobody has been there"
    handler.call(fake_batch("a"))
    handler.call(fake_batch("a", lane: 1))
    one = fake_batch(kind: :revoked)
    handler.call(one)
    assert_equal :done, one.outcome
    assert_equal %i[revoked revoked], Told.seen.last(2).map { |entry| entry[1] }
    assert_equal Told.seen.first(2).map(&:first), Told.seen.last(2).map(&:first)
    handler.call(fake_batch("a"))
    refute_equal Told.seen.first[0], Told.seen.last[0], "a new one after that"
    handler.call(fake_batch(kind: :end))
    handler.call(fake_batch(kind: :shutdown))
    assert_equal %i[eof shutdown], Told.seen.last(2).map { |entry| entry[1] }
    handler.call(fake_batch(kind: :shutdown))
    assert_equal :shutdown, Told.seen.last[1]
    assert_equal 7, Told.seen.size
  end

  def test_a_hook_that_fails_breaks_nothing
    klass = Class.new(Told) do
      def self.name = "Breaking"
      def revoked = raise(NoMemoryError, "too much")
    end
    handler = handler(klass)
    handler.call(fake_batch("a"))
    one = fake_batch(kind: :revoked)
    handler.call(one)
    assert_equal [:done], one.outcomes
    assert_match(/a hook of a consumer failed.*hook=Breaking#revoked topic=events partition=3 .*too much/, logged)
  end

  def test_who_wants_to_hear_of_the_end
    assert_equal [0], handler(Told).of_eof
    assert_empty handler(Class.new(Chaton::Consumer) { def consume(_batch) = nil }).of_eof
  end

  # Rails runs blocks of the reloader in an object of its own.
  class Reloader
    def before_class_unload(&block) = @block = block
    def unload = Object.new.instance_exec(&@block)
    def wrap = yield
  end

  def test_code_that_is_loaded_anew
    reloader = Reloader.new
    handler = with_rails(Struct.new(:reloader).new(reloader)) { handler(Told) }
    2.times { handler.call(fake_batch("a")) }
    reloader.unload
    handler.call(fake_batch("a"))
    assert_equal [1, 2], Told.seen.map(&:first).then { |ids| [ids.first(2).uniq.size, ids.uniq.size] }
  end

  private

  # Parts of the real one may be loaded by other tests.
  def with_rails(application)
    former = defined?(::Rails) ? Object.send(:remove_const, :Rails) : nil
    Object.const_set(:Rails, Module.new { define_singleton_method(:application) { application } })
    yield
  ensure
    Object.send(:remove_const, :Rails)
    Object.const_set(:Rails, former) if former
  end
end
