# frozen_string_literal: true

require_relative "support/jobs_unit_case"

# `chaton_options` and `limits_concurrency` of ActiveJob::Base.
class ActiveJobOptionsTest < JobsUnitCase
  BEGINNING = <<~RUBY
    require "active_support"
    require "active_job"
    require "chaton"
    STORE = FakeClient.new
    Chaton::Jobs.swap_client(Chaton::Jobs::Client.new(STORE))
    ActiveJob::Base.logger = nil
    ActiveJob::Base.queue_adapter = :chaton
    def extra = STORE.rows.last.item["chaton"]
  RUBY

  def setup
    super
    needs_gems "bigdecimal"
  end

  def test_options_are_those_of_a_job_of_chaton_and_inherited
    assert_equal '[["Sub:", "success"], true, 5, [{"key"=>"Sub", "max"=>2}], ["q", "Sub"], {}]', printed(<<~RUBY)
      class Parent < ActiveJob::Base
        chaton_options unique_for: 60, retry: 5
      end
      class Sub < Parent
        queue_as :q
        chaton_options limit: { concurrency: 2 }, expires_in: 30
        def perform(*) = nil
      end
      Sub.perform_later(1)
      item = STORE.rows.last.item
      expires = (25..35).cover?(extra["expires_at"] - Time.now.to_f)
      print [[extra["lock"][0, 4], extra["until"]], expires, item["retry"], extra["limits"],
             item.values_at("queue", "wrapped"), ActiveJob::Base.chaton_options].inspect.gsub(" => ", "=>")
    RUBY
  end

  def test_a_block_gets_the_arguments_of_the_job
    assert_equal '["a-7", "a-8"]', printed(<<~RUBY)
      class Sync < ActiveJob::Base
        chaton_options limit: { rate: 10, per: 60, key: ->(id, name:) { "\#{name}-\#{id}" } }
        def perform(id, name:) = nil
      end
      keys = [7, 8].map { |id| Sync.perform_later(id, name: "a") && extra["limits"].first["key"] }
      print keys.inspect
    RUBY
  end

  def test_solid_queues_name_limits_too
    assert_equal '[[{"key"=>"Sync/7", "max"=>2}], [{"key"=>"Group/x", "max"=>1}], nil]', printed(<<~RUBY)
      class Sync < ActiveJob::Base
        limits_concurrency to: 2, key: ->(id, **) { id }, duration: 300
        def perform(id, name: nil) = nil
      end
      class Other < ActiveJob::Base
        limits_concurrency key: "x", group: "Group"
        def perform = nil
      end
      class Free < ActiveJob::Base
        def perform = nil
      end
      seen = [[Sync, 7], [Other], [Free]].map { |job, *args| job.perform_later(*args) && extra&.fetch("limits") }
      print seen.inspect.gsub(" => ", "=>")
    RUBY
  end

  def test_what_cannot_be_meant_is_refused
    assert_equal(<<~TEXT, printed(<<~RUBY))
      Sync: there is no option uniqe_for; did you mean unique_for? (A key of your own for the job document must not look so much like it.)
      Sync: chaton_options takes no queue:; write queue_as
      Sync: limits_concurrency has no on_conflict: :discard here; for jobs that are not enqueued twice write chaton_options unique_for: 10.minutes
    TEXT
      class Sync < ActiveJob::Base; end
      [-> { Sync.chaton_options uniqe_for: 1 }, -> { Sync.chaton_options queue: "q" },
       -> { Sync.limits_concurrency key: 1, on_conflict: :discard }].each do |wrong|
        wrong.call
      rescue ArgumentError => e
        puts e.message
      end
    RUBY
  end

  def test_a_job_is_cancelled_by_its_jid
    Chaton::Jobs.cancel("b4a577edbccf1d805744efa9")
    assert_equal ["b4a577edbccf1d805744efa9"], @native.cancels
  end

  private

  def printed(script) = in_process("#{BEGINNING}#{script}")
end
