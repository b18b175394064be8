# frozen_string_literal: true

require_relative "ceiling_enforcer_case"

class CeilingEnforcerTest < CeilingEnforcerCase
  def test_it_trims_first_looks_again_and_recycles
    build(limit: LIMIT)
    old = child(0)
    grow(old)
    assert_equal [{ do: "trim" }], @commands[old]
    refute_predicate @ceilings, :busy?
    look
    assert_predicate @ceilings, :busy?
    assert_predicate old, :ready?
    arrive(newest)
    leave(old)
    assert_equal 1, status[:recycled_total]
    assert_equal 0, status[:hard_total]
    assert_match(/worker recycled: its memory reached 104 MiB \(soft ceiling 100 MiB\)  worker=0/, @output.string)
    assert_match(/soft ceiling 100 MiB/, @ceilings.of(newest, @now_s)[:reason])
    assert_equal 1, @ceilings.of(newest, @now_s)[:recycles]
  end

  def test_where_there_can_be_one_at_a_time_the_old_one_leaves_first
    build(limit: LIMIT)
    @worker_set.define_singleton_method(:retires_first?) { |_| true }
    old = child(0)
    grow(old)
    look
    assert_predicate old, :stopping?
    assert_match(/only one of its name, so it exits first/, @output.string)
    leave(old)
    assert_equal 1, status[:recycled_total]
  end

  def test_a_successful_trim_avoids_recycling
    build(limit: LIMIT)
    grow(child(0))
    use(child(0), 80)
    3.times { look }
    refute_predicate @ceilings, :busy?
    assert_equal 1, @commands[child(0)].size
  end

  def test_never_two_at_once
    build(limit: LIMIT)
    both = @worker_set.children.dup
    both.each { |child| use(child, 130) }
    3.times { look }
    assert_equal 3, @worker_set.children.size
    assert_equal 1, status[:recycling].size
    arrive(newest)
    3.times { look }
    assert_equal 3, @worker_set.children.size, "the first one has not left yet"
    leave(both.find(&:stopping?))
    3.times { look }
    assert_equal 3, @worker_set.children.size
    assert(both.all? { |child| child.dead? || child.ready? })
  end

  def test_a_trim_is_followed_by_an_early_reading
    build(limit: LIMIT, every_s: 3600.0)
    look
    lose(child(0))
    tick
    arrive(newest, size: 110, starting: true)
    assert_in_delta @now_s + 2, @monitor.due_at, 0.01
    look(starting: true)
    refute_predicate @ceilings, :pending?
    assert_match(/110 MiB/, @ceilings.refusal)
  end

  def test_an_idle_worker_close_to_its_ceiling_trims_less_and_less_often
    build(limit: LIMIT)
    use(child(0), 95)
    60.times { look }
    assert_equal 2, @commands[child(0)].size, "at once and after one minute"
    60.times { look }
    assert_equal 3, @commands[child(0)].size, "then after two"
    use(child(0), 85)
    look
    use(child(0), 95)
    look
    assert_equal 4, @commands[child(0)].size, "what has shrunk begins anew"
    30.times { look }
    assert_equal 5, @commands[child(0)].size
  end

  def test_a_successor_that_fails_is_answered_with_a_pause
    build(limit: LIMIT)
    old = child(0)
    use(old, 120)
    2.times { look }
    lose(newest, "exit 1")
    look
    assert_match(/recycling abandoned: the new worker did not come up; the old one goes on serving.*next_in_s=5.0/,
                 @output.string)
    assert_predicate old, :ready?
    2.times { look }
    assert_equal 2, @worker_set.children.size
    2.times { look }
    assert_equal 3, @worker_set.children.size, "after the pause it is tried again"
  end

  def test_first_workers_that_do_not_fit_are_refused_after_a_trim
    build(limit: LIMIT, size: 110, starting: true)
    assert_predicate @ceilings, :pending?
    assert_equal [{ do: "trim" }], @commands[child(0)]
    look(starting: true)
    assert_match(/\Amemory limit 100 MiB is below what the application needs after loading: 110 MiB/, @ceilings.refusal)
  end

  def test_first_workers_that_shrink_are_not_refused
    build(limit: LIMIT, size: 110, starting: true)
    @worker_set.children.each { |child| use(child, 70) }
    look(starting: true)
    refute_predicate @ceilings, :pending?
    assert_nil @ceilings.refusal
  end

  def test_a_later_one_that_does_not_fit_is_left_alone_for_a_while
    build(limit: LIMIT)
    old = child(0)
    use(old, 120)
    2.times { look }
    arrive(newest, size: 110)
    leave(old)
    20.times { look }
    assert_equal 2, @worker_set.children.size
    assert_match(/above its soft ceiling as soon as it is ready.*soft="100 MiB" not_before_s=60.0/, @output.string)
    15.times { look }
    assert_equal 3, @worker_set.children.size
  end

  def test_cramped_processes_are_logged_once
    build(limit_tree: 100 * MIB, size: 60)
    3.times { look }
    assert_equal 1, @output.string.scan("none has grown since it was ready").size
    refute_predicate @ceilings, :busy?
  end

  def test_without_ceilings_the_status_has_figures
    build
    assert_equal 40 * MIB, @ceilings.of(child(0), @now_s)[:pss]
    assert_equal 80 * MIB, status[:total]
    assert_nil status[:limit]
  end
end
