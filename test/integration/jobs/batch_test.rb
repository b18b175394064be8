# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# Batches of jobs, and iterable jobs that are interrupted and resumed.
class JobsBatchTest < Minitest::Test
  include JobsTest

  JOBS = <<~RUBY
    class Row
      include Chaton::Job
      options retry: 0
      def perform(id)
        raise "fails" if id == "bad" && !File.exist?("mended")
        Recorder.note(id)
      end
    end

    class Table
      include Chaton::Job
      def perform(name, rows)
        Chaton::Batch.new.on(:success, Done, "name" => name).jobs { Row.perform_bulk(rows.map { |row| [row] }) }
      end
    end

    class Done
      def on_success(status, options) = note("success", status, options)
      def on_complete(status, options) = note("complete", status, options)
      def on_death(status, options) = note("death", status, options)
      def note(event, status, options)
        Recorder.note("\#{event}:\#{options["name"]}:\#{status.total}:\#{status.failures}:\#{status.pending}")
      end
    end

    class Count
      include Chaton::IterableJob
      def build_enumerator(size, cursor:) = array_enumerator((0...size).to_a, cursor: cursor)
      def each_iteration(item, *)
        Recorder.note(item)
        sleep 0.02
      end
      def on_start = Recorder.note("start", "event")
      def on_resume = Recorder.note("resume", "event")
      def on_complete = Recorder.note("complete", "event")
      def on_cancel = Recorder.note("cancel", "event")
    end
  RUBY
  ALL = '.on(:success, Done, "name" => NAME).on(:complete, Done, "name" => NAME).on(:death, Done, "name" => NAME)'

  every_store def test_callbacks_run_after_all_jobs
    server = boot_jobs(JOBS)
    console = console(server)
    console.run("#{batch("b")}.jobs { 100.times { |n| Row.perform_async(n) } }; nil")
    server.eventually("success") { server.record.of("success:b:100:0:0").any? }
    drained(server, console)
    assert_equal 100, server.record.ids.grep(/\A\d+\z/).size
    assert_equal %w[complete:b:100:0:0 success:b:100:0:0], callbacks(server)
    assert_equal 0, server.stop
  end

  each_store def test_the_death_callback_runs_at_once_and_a_retried_dead_job_completes_the_batch
    server = boot_jobs(JOBS)
    console = console(server)
    bid = console.run("batch = #{batch("b")}; batch.jobs { Row.perform_bulk([[1], [2], [\"bad\"]]) }; batch.bid")
    server.eventually("complete") { server.record.ids.grep(/\Acomplete:b:3:1/).any? }
    server.eventually("death") { server.record.ids.grep(/\Adeath:b:3:1/).any? }
    assert_equal [1, true, false], console.run("Chaton::Batch.new(#{bid.dump}).status.then { |one| " \
                                               "[one.pending, one.complete?, one.success?] }")
    server.write("mended", "")
    console.run("Chaton::Jobs::DeadSet.new.retry_all")
    server.eventually("success") { server.record.ids.grep(/\Asuccess:b:3:/).any? }
    drained(server, console)
    assert_equal 1, server.record.ids.grep(/success/).size
    assert_equal 0, server.stop
  end

  each_store def test_a_batch_waits_for_nested_batches
    server = boot_jobs(JOBS, workers: "jobs: 2")
    console = console(server)
    tables = (0...5).map { |n| ["t#{n}", (0...10).map { |m| "#{n}.#{m}" }] }
    console.run("#{batch("outer")}.jobs { Table.perform_bulk(#{tables.inspect}) }; nil")
    server.eventually("success") { server.record.ids.grep(/\Asuccess:outer/).any? }
    drained(server, console)
    ids = server.record.ids
    assert_equal 50, ids.grep(/\A\d\.\d\z/).uniq.size
    assert_equal 5, ids.grep(/\Asuccess:t\d:10:0:0/).uniq.size
    last_row = ids.rindex { |id| id.match?(/\A\d\.\d\z/) }
    assert_operator ids.index { |id| id.start_with?("success:outer") }, :>, last_row
    assert_equal 0, server.stop
  end

  each_store def test_an_empty_batch_succeeds
    server = boot_jobs(JOBS)
    console(server).run("#{batch("none")}.jobs { }; nil")
    server.eventually("success") { server.record.of("success:none:0:0:0").any? }
    assert_equal 0, server.stop
  end

  every_store def test_a_batch_survives_kills
    server = boot_jobs(JOBS, workers: "jobs: 2", config: JobsServer::QUICK)
    console = console(server)
    console.run("#{batch("b")}.jobs { Row.perform_bulk((0...5_000).map { |n| [n] }) }; nil")
    killed = []
    2.times do |round|
      server.eventually("progress") { server.record.count > 1_000 * (round + 1) }
      # The status may still name the killed worker for a moment.
      killed << server.eventually("a worker") { (server.workers - killed).first }
      server.signal("KILL", killed.last)
    end
    server.eventually("success") { server.record.ids.grep(/\Asuccess:b:5000:0:0/).any? }
    drained(server, console)
    assert_equal 5_000, server.record.ids.grep(/\A\d+\z/).uniq.size
    assert_equal 0, server.stop
  end

  # A process that makes a nested batch, runs its jobs and its callback, and ends at once at one of these steps.
  KILLS = <<~RUBY
    module Step
      def self.reached(name)
        return unless File.exist?("kill-\#{name}")

        File.delete("kill-\#{name}")
        Process.kill("KILL", Process.pid)
        sleep
      end
    end

    class Chaton::Batch
      prepend(Module.new do
        def create(*)
          super
          Step.reached("opened")
        end

        def close(*)
          Step.reached("pushed")
          super
          Step.reached("closed")
        end
      end)
    end

    class Leaf
      include Chaton::Job
      def perform(name)
        Step.reached("job")
        Recorder.note("leaf:\#{name}")
      end
    end

    class Outer
      include Chaton::Job
      def perform(name)
        Chaton::Batch.new.on(:success, Inner, "name" => name).jobs { Leaf.perform_bulk([[name]] * 3) }
        Step.reached("ended")
      end
    end

    class Inner
      def on_success(_status, options)
        Step.reached("callback")
        Recorder.note("inner:\#{options["name"]}")
      end
    end
  RUBY
  STEPS = %w[opened pushed closed ended job callback].freeze

  every_store def test_a_nested_batch_survives_a_kill_at_each_step
    server = boot_jobs(JOBS + KILLS, config: JobsServer::QUICK)
    console = console(server)
    STEPS.each_with_index do |step, round|
      server.write("kill-#{step}", "")
      # The process that enqueues makes the outer batch, and must not be killed.
      console.run("Step.define_singleton_method(:reached) { |_| }; " \
                  "#{batch(step)}.jobs { Outer.perform_async(#{step.dump}) }; nil")
      server.eventually("success after #{step}") { server.record.ids.grep(/\Asuccess:#{step}:1:0:0/).any? }
      server.eventually("success of the nested batch") { server.record.of("inner:#{step}").any? }
      refute File.exist?(server.path("kill-#{step}"))
      drained(server, console)
      ids = server.record.ids
      assert_operator ids.rindex("leaf:#{step}"), :<, ids.index { |id| id.start_with?("success:#{step}") }
      # The worker may have died before it acknowledged a callback that had run, which then runs once more.
      assert_equal ["complete:#{step}:1:0:0", "success:#{step}:1:0:0"], callbacks(server).grep(/:#{step}:/).uniq
      assert_equal round + 1, server.log.scan("ERROR worker died").size
    end
    assert_equal 0, server.stop
  end

  each_store def test_an_interrupted_iteration_resumes_at_its_cursor
    server = boot_jobs(JOBS)
    console = console(server)
    console.run("Count.perform_async(150)")
    2.times do |round|
      server.eventually("some") { server.record.count > 30 * (round + 1) }
      assert_equal 0, server.stop
      server.wait_all_gone
      assert_equal 1, stats(console)["enqueued"]
      refute documents(console, "queue:default").first.key?("retry_count")
      server.start.ready
    end
    server.eventually("the end") { server.record.of("complete").any? }
    drained(server, console)
    assert_equal Array.new(150, &:to_s), server.record.ids
    assert_equal %w[start resume resume complete], server.record.ids("event")
    assert_equal 0, server.stop
  end

  each_store def test_a_cancelled_iteration_ends
    server = boot_jobs(JOBS)
    console = console(server)
    jid = console.run("Count.perform_async(2_000)")
    server.eventually("some") { server.record.count > 5 }
    console.run("Chaton::Jobs.client.native.cancel(#{jid.dump})")
    server.eventually("the job sees that it is cancelled") { server.record.of("cancel").any? }
    drained(server, console)
    assert_equal [0, 0, 0], stats(console).values_at("dead", "failed", "retries")
    assert_operator server.record.count, :<, 2_000
    assert_equal 0, server.stop
  end

  each_store def test_an_iteration_is_cancelled_by_its_jid_in_another_process
    server = boot_jobs(JOBS)
    console = console(server)
    jid = console.run("Count.perform_async(20_000)")
    server.eventually("some") { server.record.count > 5 }
    console.run("Count.new.tap { |job| job.jid = #{jid.dump} }.cancel!")
    server.eventually("the job sees that it is cancelled") { server.record.of("cancel").any? }
    drained(server, console)
    assert_equal [0, 0, 0], stats(console).values_at("dead", "failed", "retries")
    assert_operator server.record.count, :<, 20_000
    assert_equal 0, server.stop
  end

  private

  def batch(name) = "Chaton::Batch.new#{ALL.gsub("NAME", name.dump)}"

  def callbacks(server) = server.record.ids.grep(/\A(?:success|complete|death):/).sort
end
