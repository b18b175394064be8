# frozen_string_literal: true

require_relative "../jobs/support/jobs_unit_case"

class AfterCommitTest < JobsUnitCase
  def setup
    super
    needs_gems "bigdecimal", "sqlite3"
  end

  # ActiveRecord would change what other tests see, so each of these runs by itself.
  BEGINNING = <<~RUBY
    require "active_record"
    require "chaton"
    ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: ":memory:")
    STORE = FakeClient.new
    Chaton::Jobs.swap_client(Chaton::Jobs::Client.new(STORE))
    class Late
      include Chaton::Job
    end
    class Soon < Late
      options enqueue_after_commit: false
    end
    def transaction(**options, &block) = ActiveRecord::Base.transaction(**options, &block)
    def args = STORE.items.map { |item| item["args"] }
  RUBY

  def test_a_push_waits_for_the_commit_and_returns_its_jid_at_once
    assert_printed '[24, [], [[1], ["x"]], true]', <<~RUBY
      jid = nil
      text = +"x"
      during = transaction do
        jid = Late.perform_async(1)
        Late.set(queue: "low").perform_bulk([[text]])
        text << "changed"
        args
      end
      p [jid.size, during, args, STORE.items.first["jid"] == jid]
    RUBY
  end

  def test_a_broadcast_waits_for_the_commit_and_a_rollback_drops_it
    assert_printed '[nil, [], ["a", "c"], true]', <<~RUBY
      sent = []
      hub = Object.new
      hub.define_singleton_method(:append) { |name, *| sent.push(name).any? }
      Chaton::Live.swap_client(hub)
      waits, during = transaction { [Chaton.broadcast("a", "1"), sent.dup] }
      transaction { Chaton.broadcast("b", "2"); raise ActiveRecord::Rollback }
      added = Chaton.broadcast("c", "3")
      p [waits, during, sent, added]
    RUBY
  end

  def test_a_rollback_drops_the_push
    assert_printed "[[:after], true]", <<~RUBY
      transaction { Late.perform_async("dropped"); raise ActiveRecord::Rollback }
      transaction do
        transaction(requires_new: true) { Late.perform_async("dropped"); raise ActiveRecord::Rollback }
        Late.perform_async("after")
      end
      p [args.flatten.map(&:to_sym), !Chaton::AfterCommit.waiting?]
    RUBY
  end

  def test_a_nested_transaction_waits_for_the_outermost
    assert_printed "[[], [[1]]]", <<~RUBY
      inside = transaction do
        transaction(requires_new: true) { Late.perform_async(1) }
        args
      end
      p [inside, args]
    RUBY
  end

  def test_a_batch_is_closed_after_its_jobs_are_pushed
    assert_printed "[[], false, [[1]], true]", <<~RUBY
      batch = Chaton::Batch.new
      closed = -> { STORE.batches[batch.bid][:closed] }
      inside = transaction do
        batch.jobs { Late.perform_async(1) }
        [args, closed.call]
      end
      p [*inside, args, closed.call]
    RUBY
  end

  def test_a_batch_in_a_transaction_that_is_rolled_back_is_given_up
    assert_printed "[[], {}]", <<~RUBY
      transaction do
        Chaton::Batch.new.jobs { Late.perform_async(1) }
        raise ActiveRecord::Rollback
      end
      p [args, STORE.batches]
    RUBY
  end

  def test_nothing_of_a_block_that_failed_is_pushed_by_the_commit
    assert_printed "[[], {}]", <<~RUBY
      transaction do
        Chaton::Batch.new.jobs { Late.perform_async(1); raise "no" }
      rescue RuntimeError
        nil
      end
      p [args, STORE.batches]
    RUBY
  end

  def test_a_commit_within_the_block_leaves_its_jobs_to_the_end_of_the_block
    assert_printed "[[], [[1]]]", <<~RUBY
      inside = nil
      Chaton::Batch.new.jobs do
        transaction { Late.perform_async(1) }
        inside = args
      end
      p [inside, args]
    RUBY
  end

  def test_enqueue_after_commit_can_be_switched_off
    assert_printed "[[1], [2]]", <<~RUBY
      transaction do
        Soon.perform_async(1)
        Late.set(enqueue_after_commit: false).perform_async(2)
        raise ActiveRecord::Rollback
      end
      p args
    RUBY
  end

  def test_the_transaction_around_a_test_does_not_count
    assert_printed "[[[1]], [[1], [2]]]", <<~RUBY
      connection = ActiveRecord::Base.connection
      connection.begin_transaction(joinable: false)
      Late.perform_async(1)
      before = args
      transaction { Late.perform_async(2) }
      p [before, args]
    RUBY
  end

  def test_a_push_waits_for_the_commits_of_all_databases
    assert_printed "[[], [[1]], [[1]]]", <<~RUBY
      class Other < ActiveRecord::Base
        self.abstract_class = true
        establish_connection(adapter: "sqlite3", database: ":memory:")
      end
      inside = nil
      transaction do
        Other.transaction { Late.perform_async(1) }
        inside = args
      end
      both = args
      begin
        transaction { Other.transaction { Late.perform_async(2) }; raise "no" }
      rescue RuntimeError
      end
      p [inside, both, args]
    RUBY
  end

  def test_active_record_without_a_database_delays_nothing
    assert_printed "[[1]]", <<~RUBY
      ActiveRecord::Base.remove_connection
      Late.perform_async(1)
      p args
    RUBY
  end

  private

  def assert_printed(wanted, script)
    assert_equal wanted, in_process(BEGINNING + script).chomp
  end
end
