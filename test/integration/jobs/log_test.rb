# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# The log has one line for each job that ended.
class JobsLogTest < Minitest::Test
  include JobsTest

  JOBS = NOTE + <<~RUBY
    class Broken < Note
      retry_in { 3600 }
      def perform(id)
        super
        raise "broken"
      end
    end
    class Discarded < Broken
      retry_in { :discard }
    end
    class Logging < Note
      def perform(id)
        super
        Sidekiq.logger.info("within the job")
      end
    end
    class Talking < Note
      def perform(id)
        logger.info("said within the job")
        super
      end
    end
  RUBY
  COUNT = 300

  def kind = :sqlite

  def test_each_job_that_ended_has_one_line
    server = boot_jobs(JOBS)
    jids = console(server).run("[Note, Broken, Discarded].map { |job| job.set(queue: \"default\").perform_async(1) }")
    server.eventually("each has a line") { jids.all? { |jid| server.log.include?(jid) } }
    assert_equal 0, server.stop
    lines = jids.map { |jid| server.log.lines.grep(/#{jid}/) }
    assert_equal [1, 1, 1], lines.map(&:size), lines.join
    done, *failed = lines.flatten
    assert_match(/ \[\d+\] INFO  job done  class=Note jid=\h{24} queue=default seconds=\d+\.\d+$/, done)
    assert_match(/ WARN  job failed  class=Broken jid=\h{24} queue=default seconds=\d.* reason=broken/, failed.first)
    assert_match(/ WARN  job failed  class=Discarded /, failed.last)
  end

  def test_lines_in_json
    server = launch_jobs(JOBS, config: "log_format :json")
    jids = console(server).run("[Note, Broken].map { |job| job.perform_async(1) }")
    server.eventually("each has a line") { jids.all? { |jid| server.log.include?(jid) } }
    assert_equal 0, server.stop
    done, failed = jids.map { |jid| JSON.parse(server.log.lines.find { |line| line.include?(jid) }) }
    assert_equal ["info", "job done", "Note", "default"], done.values_at("level", "message", "class", "queue")
    assert_kind_of Float, done["seconds"]
    assert_empty done.keys - failed.keys, "both have the same members"
  end

  def test_what_a_job_logs_names_it
    server = boot_jobs(JOBS)
    jid = console(server).run("Talking.perform_async(1)")
    server.eventually("it ran") { server.record.count == 1 }
    assert_equal 0, server.stop
    line = server.log.lines.find { |one| one.include?("said within the job") }
    assert_match(/ \[\d+\] INFO  said within the job  class=Talking jid=#{jid}$/, line)
  end

  def test_warnings_of_rust_threads_are_json_too
    @store = "redis://127.0.0.1:1/0"
    server = launch_jobs(JOBS, config: "log_format :json")
    line = server.wait_line(/ready without its job store/)
    assert_equal %w[time pid level message], JSON.parse(line).keys
    assert_equal "warn", JSON.parse(line)["level"]
    assert_equal 0, server.stop
    server.log.each_line { |one| JSON.parse(one) }
  end

  def test_jobs_past_the_bound_are_counted
    server = boot_jobs(JOBS, section: "log_jobs_per_s 1")
    console = console(server)
    %w[Note Broken].each { |name| console.run("#{name}.perform_bulk((0...#{COUNT}).map { |n| [n] }).size") }
    server.eventually("all ran") { server.record.count >= 2 * COUNT }
    assert_equal 0, server.stop
    counted = server.log.scan(/more jobs ended .* done=(\d+) failed=(\d+)$/).map { |pair| pair.map(&:to_i) }
    shown = ["job done", "job failed"].map { |message| server.log.scan(/#{message}  class/).size }
    refute_empty counted
    assert_equal [COUNT, COUNT], [shown.first + counted.sum(&:first), shown.last + counted.sum(&:last)]
    assert_operator shown.sum, :<, COUNT
  end

  def test_off_leaves_the_failed_jobs
    server = boot_jobs(JOBS, section: "log_jobs_per_s 0")
    jids = console(server).run("[Note, Broken].map { |job| job.perform_async(1) }")
    server.eventually("both ran") { server.record.count >= 2 }
    server.eventually("the failed one has a line") { server.log.include?(jids.last) }
    assert_equal 0, server.stop
    refute_includes server.log, jids.first
  end

  def test_the_logger_of_the_sidekiq_gem_names_the_job
    needs_gems "sidekiq"
    server = boot_jobs("require \"sidekiq\"\n#{JOBS}")
    jid = console(server, requires: ["chaton", "./app/jobs/jobs"]).run("Logging.perform_async(1)")
    server.eventually("it is logged") { server.log.include?("within the job") }
    line = server.log.lines.find { |one| one.include?("within the job") }
    assert_match(/class=Logging jid=#{jid}\b.*within the job/, line)
    assert_equal 0, server.stop
  end
end
