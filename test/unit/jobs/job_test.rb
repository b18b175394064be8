# frozen_string_literal: true

require_relative "support/jobs_unit_case"

class JobTest < JobsUnitCase
  class Parent
    include Chaton::Job
    options queue: "a", retry: 1
    retry_in { 5 }
    def perform(value) = Parent.seen << value
    def self.seen = @seen ||= []
  end

  class Child < Parent
    options queue: "b"
  end

  class Grandchild < Child; end

  def test_options_are_inherited_frozen_and_may_change
    assert_equal({ "retry" => 1, "queue" => "b", "enqueue_after_commit" => true }, Child.options)
    assert_predicate Child.options, :frozen?
    assert_equal({ "retry" => 1, "queue" => "b" }, Child.get_sidekiq_options, "what gems for Sidekiq read")
    assert_equal "a", Parent.options["queue"]
    assert_equal "b", Grandchild.options["queue"]
    Child.options tags: ["t"]
    assert_equal ["t"], Grandchild.get_sidekiq_options["tags"]
    assert_equal 5, Grandchild.sidekiq_retry_in_block.call
  end

  def test_misspelt_options_are_refused_and_other_keys_are_kept
    error = assert_raises(ArgumentError) { Class.new(Parent) { options queu: "x" } }
    assert_includes error.message, "there is no option queu; did you mean queue?"
    assert_raises(ArgumentError) { Parent.set(retryy: 5) }
    assert_equal 1, Class.new(Parent) { options customer: 1 }.options["customer"]
  end

  def test_wrong_values_of_options_are_refused
    [{ retry: "5" }, { retry: -1 }, { queue: "" }, { tags: "x" }, { unique_until: :end }, { unique_for: 0 },
     { expires_in: "soon" }, { limit: 5 }, { limit: { concurency: 5 } }, { limit: { rate: 5 } }].each do |wrong|
      assert_raises(ArgumentError, wrong.inspect) { Class.new(Parent) { options(**wrong) } }
    end
  end

  def test_an_active_job_must_not_include_chatons_module
    base = Class.new
    base.define_singleton_method(:name) { "ActiveJob::Base" }
    error = assert_raises(ArgumentError) { Class.new(base) { include Chaton::Job } }
    assert_includes error.message, "queue_adapter = :chaton"
  end

  def test_perform_inline_passes_arguments_through_json
    assert_equal true, Parent.perform_inline({ "a" => 1 })
    assert_equal true, Parent.set(sync: true).perform_async(2)
    assert_equal [{ "a" => 1 }, 2], Parent.seen.last(2)
    assert_empty @native.rows
    assert_raises(ArgumentError) { Parent.perform_sync(:x) }
  end

  # `options` is what Thor, Grape and modules of applications call something of theirs.
  class Occupied
    include Chaton::Job
    def self.options(*) = :taken
    job_options queue: "own"
    def perform; end
  end

  def test_options_have_another_name
    assert_equal [:taken, "own", "own"],
                 [Occupied.options, Occupied.job_options["queue"], Class.new(Occupied).job_options["queue"]]
    Occupied.perform_async
    assert_equal ["own"], @native.rows.map(&:queue)
  end

  def test_requiring_chaton_loads_no_native_code
    seen = in_process(<<~RUBY)
      require "chaton"
      print [$LOADED_FEATURES.grep(/chaton_native|did_you_mean.chaton|active|sidekiq/), defined?(Sidekiq), defined?(ActiveJob),
             Chaton.autoload?(:Jobs)].inspect
    RUBY
    assert_equal '[[], nil, nil, "chaton/jobs"]', seen
  end

  def test_a_push_without_configured_jobs_explains_what_to_write
    Dir.mktmpdir do |root|
      File.write("#{root}/chaton.rb", "workers 0\n")
      seen = in_process(<<~RUBY)
        Dir.chdir #{root.inspect}
        ENV["CHATON_CONFIG"] = "chaton.rb"
        require "chaton"
        class A; include Chaton::Job; end
        begin
          A.perform_async
        rescue Chaton::ConfigError => e
          print e.message
        end
      RUBY
      assert_includes seen, "no jobs are configured: write `jobs { }` into "
    end
  end
end
