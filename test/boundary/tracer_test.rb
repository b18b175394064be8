# frozen_string_literal: true

require_relative "workload_case"
require "chaton/cli/profile/answer_socket"
require "json"
require "tmpdir"

# The tracer in this process. With CHATON_GC_STRESS=1 every allocation collects while it is switched and read.
class TracerTest < Minitest::Test
  include WorkloadCase

  SETTINGS = { every: 1, duty: 1.0, window_ms: 5.0, samples_max: 4096, stacks_max: 1024, depth_max: 64,
               worker: 3 }.freeze
  # Under stress the allocations of the others count, each of which collects.
  SWITCHES = STRESS ? 2 : 1_000
  KEPT = STRESS ? 20 : 2_000

  def teardown
    super
    @tracers&.each(&:stop)
    @threads&.each { |thread| thread.kill.join }
  end

  def test_live_objects_are_found_by_their_line
    tracer = trace
    kept = stressed_for { Array.new(KEPT) { |number| keep(number) } }
    3.times { GC.start }
    report = JSON.parse(stressed_for { tracer.report })
    row = report["rows"].select { |one| line_of(report, one) == at_keep }.max_by { |one| one["live"].last }
    assert row, "no sample of #{at_keep}"
    assert_equal "String", report["classes"][row["class"]]
    assert_operator row["live"].first, :>=, KEPT / 4
    assert_operator row["live"].last, :>=, row["live"].first * 1_000 unless STRESS
    assert_equal [3, Process.pid], report["sources"].first.values_at("worker", "pid")
    assert_equal KEPT, kept.size
  end

  def test_freed_objects_are_counted
    tracer = trace
    KEPT.times { |number| keep(number) }
    3.times { GC.start }
    report = JSON.parse(tracer.report)
    rows = report["rows"].select { |one| line_of(report, one) == at_keep }
    freed, live = %w[freed live].map { |what| rows.sum { |one| one[what].first } }
    assert_operator freed, :>, live * 10
  end

  def test_switched_a_thousand_times_while_others_allocate
    stop = false
    @threads = Array.new(2) { Thread.new { Array.new(10) { +"x" } && Thread.pass until stop } }
    tracer = nil
    SWITCHES.times { tracer = stressed_for { switch } }
    refute_predicate tracer, :running?
    refute tracer.window
    assert_kind_of Array, JSON.parse(tracer.report)["rows"]
    assert_raises(Chaton::Error) { tracer.start }
  ensure
    stop = true
  end

  def test_one_at_a_time
    trace
    other = new_tracer
    assert_match(/another tracer is running/, assert_raises(Chaton::Error) { other.start }.message)
    @tracers.each(&:stop)
    @tracers << other = new_tracer
    other.start
    assert_predicate other, :running?
  end

  def test_commands_switch_it_while_serving
    port = serve(threads: [1, 3]) { |env| [200, {}, [env["PATH_INFO"] * 10]] }
    # Clients of this process would collect with each of their own allocations, too.
    load = ClientLoad.new(port, clients: STRESS ? 0 : 4)
    Chaton::CLI::Profile::AnswerSocket.open(beside: File.join(Dir.tmpdir, "none")) do |mailbox|
      (STRESS ? 1 : 800).times do
        %w[start stop].each { |action| assert_equal [true], order(mailbox, action), action }
        assert_equal 200, get(port).status if STRESS
      end
      order(mailbox, "start")
      assert_equal [true], order(mailbox, "report")
    end
    assert_empty load.stop.failures
    assert_operator load.answered, :>, 0 unless STRESS
  ensure
    GC.stress = false
    load&.stop
  end

  def test_a_window_ends_when_tracing_does
    tracer = trace(duty: 0.001, window_ms: 1000.0)
    sampler = @threads.last
    assert_predicate tracer, :running?
    tracer.stop
    assert sampler.join(10), "the thread still waits"
    assert_equal false, tracer.status[:running]
  end

  def test_a_report_can_be_made_in_every_format
    tracer = trace
    kept = Array.new(KEPT) { |number| keep(number) }
    GC.start
    report = tracer.report
    %w[text collapsed pprof svg].each do |format|
      text = stressed_for { Chaton::Native.render_profile([report, report], format, "live", "t") }
      refute_empty text, format
    end
    assert_raises(ArgumentError) { Chaton::Native.render_profile([report], "ppof", "live", "t") }
    assert_raises(ArgumentError) { Chaton::Native.render_profile(["{"], "text", "live", "t") }
    refute_empty kept
  end

  def test_settings_are_checked
    { every: 0, duty: 0.0, depth_max: "x" }.each do |name, wrong|
      error = assert_raises(ArgumentError) { new_tracer(name => wrong) }
      assert_match(/#{name}/, error.message)
    end
  end

  def test_it_cannot_be_used_in_a_forked_child
    tracer = trace
    pid = fork do
      begin
        tracer.report
      rescue Chaton::ForkedError
        Array.new(1_000) { +"y" }
        GC.start
        exit!(0)
      end
      exit!(1)
    end
    assert_equal 0, Process.wait2(pid).last.exitstatus
    assert_predicate tracer, :running?
  end

  private

  def new_tracer(**settings) = Chaton::Native::Tracer.new(JSON.generate({ **SETTINGS, **settings }))

  def trace(**settings)
    tracer = new_tracer(**settings)
    (@tracers ||= []) << tracer
    tracer.start
    (@threads ||= []) << Thread.new { nil while tracer.window }
    # The first window has to be open, or what follows is not seen.
    eventually { tracer.status[:windows].positive? } if settings.empty?
    tracer
  end

  # Stopped in the middle of a window, and before it.
  def switch
    tracer = new_tracer
    tracer.start
    sampler = Thread.new { nil while tracer.window }
    Thread.pass
    tracer.stop
    sampler.join
    tracer
  end

  def keep(number)
    number.to_s.ljust(2_000, ".")
  end

  def at_keep = "#{File.expand_path(__FILE__)}:#{method(:keep).source_location.last + 1}"

  # The innermost line of Ruby code; a method written in C has none.
  def line_of(report, row)
    places = report["stacks"][row["stack"]].map { |location| report["locations"][location] }
    frame, line = places.find { |index, _| report["frames"][index]["path"] != "" }
    frame && "#{report["frames"][frame]["path"]}:#{line}"
  end

  def order(mailbox, action)
    stressed_for do
      @workload.run_command(JSON.generate({ do: "ask", action: action, reply_to: mailbox.path, every: 1, duty: 1.0 }))
    end
    mailbox.collect(1, 10 * PATIENCE).map(&:ok?)
  end

  def stressed_for
    GC.stress = STRESS
    yield
  ensure
    GC.stress = false
  end
end
