# frozen_string_literal: true

require_relative "support/jobs_unit_case"

# Queues and capsules that an application declares in Ruby, with stand-ins for versions of the gem.
class SidekiqBootTest < JobsUnitCase
  SCRIPT = <<~RUBY
    require "chaton"
    require "chaton/config/plan"
    require "chaton/config/jobs_settings"
    LINES = []
    LOG = Object.new
    def LOG.warn(line, **facts) = LINES << [line, facts]
    Capsule = Struct.new(:queues, :weights, :concurrency)
    module Sidekiq
      VERSION = "8.1"
      class Config
        DEFAULTS = { concurrency: 5 }
        def capsules = @capsules ||= {}
        def [](name) = DEFAULTS[name]
      end
      def self.default_configuration = @config ||= Config.new
    end
    CAPSULES = Sidekiq.default_configuration.capsules
    def plan(queues = Chaton::Config::QueueSelection::DEFAULT.queues, threads = nil)
      jobs = Chaton::Config::JobsSettings.new(queues: queues, mode: "strict", threads: threads,
                                              store_settings: { url: "sqlite://x" })
      Chaton::Config::Plan.new(jobs: jobs, threads_min: 8, threads_max: 50, threads_max_given: false)
    end
    def applied(plan, roles = [:jobs])
      plan = Chaton::Jobs::SidekiqBoot.apply(plan, roles)
      [plan.jobs.mode, plan.jobs.queues, plan.threads_min, plan.threads_max]
    end
    def checked(plan)
      Chaton::Jobs::SidekiqBoot.check(plan, LOG)
      LINES.map(&:first).reject { |line| line.start_with?("the sidekiq gem") }
    rescue Chaton::ConfigError => e
      e.message
    end
  RUBY
  DEFAULT = [["default", 1]].freeze

  def test_nothing_set_changes_nothing
    assert_equal [["strict", DEFAULT, 8, 50], []], evaluated("[applied(plan), checked(plan)]")
  end

  def test_queues_and_concurrency_of_the_default_capsule
    wanted = [["weighted", [["a", 3], ["b", 1]], 4, 4], ["strict", [["a", 1], ["b", 1]], 8, 20],
              ["random", [["a", 1], ["b", 1]], 8, 50]]
    assert_equal wanted, evaluated(<<~RUBY)
      [Capsule.new(%w[a a a b], { "a" => 3, "b" => 1 }, 4), Capsule.new(%w[a b], { "a" => 0, "b" => 0 }, 20),
       Capsule.new(%w[a b], { "a" => 1, "b" => 1 }, 5)].map do |capsule|
        CAPSULES["default"] = capsule
        applied(plan)
      end
    RUBY
  end

  def test_what_the_configuration_sets_is_kept
    assert_equal [["strict", [["z", 1]], 8, 50], ["strict", DEFAULT, 8, 50],
                  ["queues of Sidekiq.configure_server are not run, because the configuration names others"]],
                 evaluated(<<~RUBY)
                   CAPSULES["default"] = Capsule.new(%w[a], { "a" => 0 }, 4)
                   named = plan([["z", 1]], :threads)
                   CAPSULES["x"] = CAPSULES.delete("default")
                   without = applied(plan)
                   CAPSULES["default"] = CAPSULES.delete("x")
                   [applied(named, %i[web jobs]), without, checked(named)]
                 RUBY
  end

  def test_a_capsule_is_refused_unless_the_configuration_names_the_queues
    refused, warned = evaluated(<<~RUBY)
      CAPSULES["one"] = Capsule.new(%w[single], { "single" => 0 }, 1)
      [checked(plan), checked(plan([["single", 1]]))]
    RUBY
    assert_match(/\ASidekiq's capsule "one" gives single threads of their own, which queues do not have/, refused)
    assert_equal ["a capsule of Sidekiq has no threads of its own here"], warned
  end

  def test_a_name_that_no_queue_can_have_is_refused
    assert_match(/\Athe queues that the application sets for Sidekiq must be .*"a b" is not a name/, evaluated(<<~RUBY))
      CAPSULES["default"] = Capsule.new(["a b"], { "a b" => 0 }, 5)
      checked(plan)
    RUBY
  end

  def test_queues_are_read_without_the_gem
    assert_equal [{ "b" => 1, "a" => 2 }, 3, []].inspect, in_process(<<~RUBY)
      require "chaton/sidekiq"
      Chaton::Jobs::Runtime.instance_variable_set(:@server, true)
      Sidekiq.configure_server do |config|
        config.queues = %w[b a a]
        config.concurrency = 3
      end
      print [Chaton::Jobs::SidekiqGem.queues, Chaton::Jobs::SidekiqGem.concurrency,
             Chaton::Jobs::SidekiqGem.capsules].inspect
    RUBY
  end

  private

  def evaluated(script)
    JSON.parse(in_process("#{SCRIPT}result = begin\n#{script}\nend\nprint JSON.generate(result)"))
  end
end
