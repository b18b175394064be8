# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# Misbehaving jobs and malformed documents harm only themselves.
class JobsMisbehaviourTest < Minitest::Test
  include JobsTest

  JOBS = NOTE + <<~RUBY
    class Bad
      include Chaton::Job
      options retry: 0
      def perform(how)
        Recorder.note(how, "began")
        case how
        when "exit" then exit
        when "abort" then abort
        when "throw" then throw :nowhere
        when "thread" then Thread.current.kill
        when "thread-exit" then Thread.exit
        when "exception" then raise Exception, "above all rescues"
        when "interrupt" then raise Interrupt
        when "stack" then deeper(0)
        when "never" then sleep
        # The signal ends the process.
        when "exit!" then exit!(3)
        when "segv" then Process.kill(:SEGV, Process.pid) && sleep
        end
      end

      def deeper(level) = deeper(level + 1)
    end
  RUBY

  HARMLESS = %w[exit abort throw thread thread-exit exception interrupt stack].freeze

  each_store def test_a_job_cannot_end_its_worker_thread
    server = boot_jobs(JOBS, threads: "1..4")
    console = console(server)
    pid = server.workers.first
    console.run("#{HARMLESS.inspect}.each { |how| 3.times { Bad.perform_async(how) } }; Note.perform_async(\"after\")")
    dead = HARMLESS.size * 3
    server.eventually("they are dead") { stats(console)["dead"] == dead }
    server.eventually("the others go on") { server.record.of("after").any? }
    assert_equal [pid], server.workers
    causes = documents(console, "dead").group_by { |item| item["args"].first }
    assert_equal [3], causes.values.map(&:size).uniq
    { "exit" => "SystemExit", "throw" => "UncaughtThrowError", "exception" => "Exception",
      "stack" => "SystemStackError" }.each { |how, error| assert_equal error, causes[how].first["error_class"] }
    # The pool has as many threads as before.
    console.run("Note.perform_bulk((0...200).map { |n| [\"x\#{n}\"] })")
    server.eventually("the pool is whole") { server.record.count == 201 }
    assert_equal 0, server.stop
  end

  each_store def test_a_job_that_never_returns_blocks_only_its_thread
    server = boot_jobs(JOBS, threads: "2..4", config: "shutdown_timeout_s 1")
    console = console(server)
    jid = console.run("Bad.perform_async(\"never\")")
    server.eventually("it runs") { server.record.count("began") == 1 }
    console.run("Note.perform_bulk((0...500).map { |n| [n] })")
    server.eventually("the others go on") { server.record.count == 500 }
    server.eventually("only that job is in flight") { stats(console)["in_flight"] == 1 }
    server.stop
    assert_equal [jid], documents(console, "queue:default").map { |item| item["jid"] }
  end

  each_store def test_a_job_that_crashed_three_workers_is_dead
    server = boot_jobs(JOBS, workers: "jobs: 2", threads: "1..4", config: JobsServer::QUICK)
    console = console(server)
    jid = console.run("Bad.perform_async(\"segv\")")
    notes = 0
    server.eventually("the poison is dead") do
      console.run("Note.perform_bulk((#{notes}...#{notes + 20}).map { |n| [n] })")
      notes += 20
      stats(console)["dead"] == 1
    end
    server.eventually("all beside it ran") { server.record.tally.size == notes }
    assert_equal 3, server.record.of("segv").size
    item = documents(console, "dead").first
    assert_equal [jid, "Chaton::Jobs::Poison", 3], [item["jid"], item["error_class"], item["chaton"]["deaths"]]
    # Ruby reports the fault and then aborts.
    assert_match(/SIG(?:ABRT|SEGV)/, item["error_message"])
    refute item.key?("retry_count"), "a death is no retry"
    server.wait_line(/in the dead set/)
    assert_equal 0, server.stop
  end

  each_store def test_exit_bang_counts_as_a_crash
    server = boot_jobs(JOBS, workers: "jobs: 1", config: JobsServer::QUICK)
    console = console(server)
    console.run("Bad.perform_async(\"exit!\")")
    server.eventually("it is dead") { stats(console)["dead"] == 1 }
    assert_equal 3, server.record.of("exit!").size
    assert_match(/exit 3/, documents(console, "dead").first["error_message"])
    console.run("Note.perform_async(\"after\")")
    server.eventually("the others go on") { server.record.of("after").any? }
    assert_equal 0, server.stop
  end

  FORKS = <<~RUBY
    class Forks
      include Chaton::Job
      def perform(how)
        pid = fork
        leave(how) or return if pid.nil?
        Recorder.note("\#{how}:\#{Process.wait2(pid).last.exitstatus}")
      end

      def leave(how)
        exit 7 if how == "exit"
        raise "in the child" if how == "raise"
      end
    end
    Chaton::Jobs.configure { |config| config.error_handlers << ->(error, _) { Recorder.note("told:\#{error.message}") } }
  RUBY

  every_store def test_a_forked_child_that_returns_does_not_work_on
    server = boot_jobs(FORKS)
    console = console(server)
    %w[exit raise return].each { |how| console.run("Forks.perform_async(#{how.dump})") }
    server.eventually("each ran once, in the parent") { server.record.count == 3 }
    drained(server, console)
    assert_equal %w[exit:7 raise:1 return:0], server.record.ids.sort
    assert_match(/a child that a job forked failed.*in the child/, server.log)
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  MALFORMED = ["{", "", "null", "[1]", "\"text\"", "\xFF\xFE".b, "{\"class\":1,\"args\":[],\"jid\":\"a\"}",
               "{\"class\":\"Note\",\"args\":{},\"jid\":\"a\"}", "#{"[" * 5000}#{"]" * 5000}"].freeze

  def test_malformed_documents_become_dead_unchanged
    @kind = :redis
    server = boot_jobs(JOBS)
    console = console(server)
    client = redis.client
    client.sadd("queues", ["default"])
    MALFORMED.each { |text| client.lpush("queue:default", text) }
    console.run("Note.perform_async(\"after\")")
    server.eventually("the good one runs") { server.record.of("after").any? }
    server.eventually("they are dead") { client.zcard("dead") == MALFORMED.size }
    assert_equal MALFORMED.map(&:b).sort, client.zrange("dead", 0, -1).map(&:b).sort
    drained(server, console)
    # They can still be listed, shown and removed.
    assert_equal MALFORMED.size, console.run("Chaton::Jobs::DeadSet.new.count(&:item)")
    assert_equal MALFORMED.size, console.run("Chaton::Jobs::DeadSet.new.clear")
    assert_equal 0, server.stop
  ensure
    client&.close
  end
end
