# frozen_string_literal: true

require_relative "support/jobs_unit_case"

class ChainTest < Minitest::Test
  class Named
    def initialize(out = []) = @out = out

    def call(*args)
      @out << [self.class.name[/\w+\z/].to_sym, *args]
      yield
    end
  end

  class A < Named; end
  class B < Named; end
  class C < Named; end

  class Stop
    def call(*) = nil
  end

  def setup
    @out = []
    @chain = Chaton::Jobs::Chain.new
  end

  def test_middleware_runs_from_the_outside_in_with_its_arguments
    @chain.add(B, @out)
    @chain.prepend(A, @out)
    @chain.add(C, @out)
    assert_equal :inner, @chain.invoke(1, 2) { :inner }
    assert_equal [[:A, 1, 2], [:B, 1, 2], [:C, 1, 2]], @out
  end

  def test_middleware_that_does_not_yield_stops_the_chain
    @chain.add(Stop)
    assert_nil(@chain.invoke { flunk })
  end

  def test_the_order_can_be_changed
    @chain.add(A).add(C).insert_before(C, B)
    assert_equal [A, B, C], @chain.map(&:klass)
    @chain.insert_after(C, A)
    assert_equal [B, C, A], @chain.map(&:klass)
    @chain.add(B)
    assert_equal [C, A, B], @chain.map(&:klass)
    @chain.insert_before(Stop, A)
    assert_equal [A, C, B], @chain.map(&:klass)
    @chain.remove(A)
    refute @chain.exists?(A)
    assert @chain.include?(C)
    assert_empty @chain.clear.to_a
  end
end
