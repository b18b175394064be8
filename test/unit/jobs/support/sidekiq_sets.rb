# frozen_string_literal: true

require_relative "names_case"

# Sidekiq's names for stored jobs.
class SidekiqSetsTest < NamesCase
  def test_a_job_of_a_queue
    jid = Listed.perform_async(1, "x")
    job = Sidekiq::Queue.new("low").find_job(jid)
    assert_equal ["Listed", "Listed", [1, "x"], [1, "x"], ["a"], "low", jid],
                 [job.klass, job.display_class, job.args, job.display_args, job.tags, job.queue, job.jid]
    assert_equal jid, JSON.parse(job.value)["jid"]
    assert_operator job.latency, :>=, 0
    assert_equal [true, false], [job.delete, job.delete]
    assert_equal 0, Sidekiq::Queue.new("low").size
    assert_equal(["low"], Sidekiq::Queue.all.map(&:name).grep("low"))
  end

  def test_a_set_is_read_from_its_last_time_while_jobs_are_deleted
    now = Time.now.to_f
    250.times { |number| Sidekiq::RetrySet.new.schedule(now + number, document(number.to_s)) }
    set = Sidekiq::RetrySet.new
    assert_equal((0..249).map(&:to_s).reverse, set.map(&:jid))
    set.each(&:delete)
    assert_equal 0, set.size
  end

  def test_jobs_are_found_by_time_jid_and_pattern
    now = Time.now.to_f
    %w[a b c].each_with_index { |jid, second| Sidekiq::RetrySet.new.schedule(now + second, document("jid-#{jid}")) }
    set = Sidekiq::RetrySet.new
    assert_equal ["jid-b"], set.fetch(now + 1).map(&:jid)
    assert_equal %w[jid-a jid-b], set.fetch(now..(now + 1)).map(&:jid).sort
    assert_equal ["jid-c"], set.fetch(Time.at(now)..Time.at(now + 60), "jid-c").map(&:jid)
    assert_equal ["jid-b"], set.scan("jid-b").map(&:jid)
    assert_equal 3, set.scan("*Listed*").count
    assert_empty set.scan("Listed*").to_a, "a pattern is of the whole document"
    assert set.delete(now + 1, "jid-b")
    refute set.delete(now + 1, "jid-b")
    assert_raises(ArgumentError) { set.delete(now) }
    assert_equal 2, set.size
  end

  def test_a_job_of_a_set_gets_another_time
    Sidekiq::RetrySet.new.schedule(Time.now + 60, document("a", "error_class" => "IOError"))
    job = Sidekiq::RetrySet.new.first
    later = Time.now + 600
    assert job.reschedule(later)
    [job, Sidekiq::RetrySet.new.first].each { |one| assert_in_delta later.to_f, one.at.to_f, 0.001 }
    assert_predicate job, :error?
    assert job.add_to_queue
    refute job.reschedule(later), "it is in its queue"
    assert_equal ["a"], Sidekiq::Queue.new("low").map(&:jid)
  end

  def test_jobs_are_killed_and_death_handlers_called
    deaths = []
    Sidekiq.death_handlers << ->(job, error) { deaths << [job["jid"], error.message] }
    set = Sidekiq::DeadSet.new
    set.kill(JSON.generate(document("a")))
    set.kill(JSON.generate(document("b")), notify_failure: false)
    set.kill(JSON.generate(document("c")), ex: IOError.new("why"))
    assert_equal [["a", "Job killed by API"], %w[c why]], deaths
    assert_equal %w[a b c], set.map(&:jid).sort
    Listed.perform_in(60, 1)
    assert Sidekiq::ScheduledSet.new.first.kill
    assert_equal 3, deaths.size
    2.times { |number| Sidekiq::RetrySet.new.schedule(Time.now + 60, document(number.to_s)) }
    assert_equal 2, Sidekiq::RetrySet.new.kill_all
    assert_equal [3, 6], [deaths.size, set.size]
    assert_equal 6, set.retry_all
  end

  def test_a_job_that_came_from_elsewhere_is_shown
    mail = { "wrapped" => "ActionMailer::MailDeliveryJob", "args" => [{ "arguments" => [
      "Letters", "welcome", "deliver_now", { "params" => { "user" => { "_aj_globalid" => "gid://app/User/1" } },
                                             "args" => [7], "_aj_ruby2_keywords" => ["args"] }
    ] }] }
    record = Sidekiq::JobRecord.new(JSON.generate(mail), "mailers")
    assert_equal ["Letters#welcome", [{ "user" => "gid://app/User/1" }, [7]], "mailers"],
                 [record.display_class, record.display_args, record.queue]
    plain = Sidekiq::JobRecord.new(JSON.generate("wrapped" => "Report", "args" => [{ "arguments" => [1] }]))
    assert_equal ["Report", [1]], [plain.display_class, plain.display_args]
    secret = Sidekiq::JobRecord.new({ "class" => "X", "args" => [1, "s"], "encrypt" => true })
    assert_equal [1, "[encrypted data]"], secret.display_args
    assert_equal [nil, ["no json"], []], Sidekiq::JobRecord.new("no json").then { |r| [r.klass, r.args, r.tags] }
  end
end
