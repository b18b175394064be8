# frozen_string_literal: true

require "test_helper"
require "chaton/memory/tracer_control"
require "chaton/telemetry/log"
require "json"
require "socket"
require "stringio"
require "tmpdir"

# TracerControl with a tracer that only notes its calls.
class TracerControlTest < Minitest::Test
  # Has the interface of Native::Tracer.
  class Tracer
    class << self
      attr_accessor :all
    end
    attr_reader :settings, :windows
    attr_accessor :fault

    def initialize(settings)
      @settings = JSON.parse(settings, symbolize_names: true)
      raise ArgumentError, "every is 0" if @settings[:every].zero?

      @wake = Queue.new
      @windows = 0
      self.class.all << self
    end

    def start = @running = true

    def stop
      @running = false
      @wake << false
    end

    def running? = @running || false
    def open = @wake << true

    def window
      raise @fault if @fault

      @wake.pop && (@windows += 1)
    end

    def status = { running: running?, windows: @windows, sampled: 7 }

    def report
      raise @fault if @fault

      JSON.generate({ "häuser" => "x" * 300_000 })
    end
  end

  Memory = Struct.new(:profile, :profile_every, :profile_duty, :profile_window_ms, :profile_samples_max,
                      :profile_stacks_max, :profile_depth_max)
  Plan = Struct.new(:memory)

  def setup
    Tracer.all = []
    @dir = Dir.mktmpdir
    @path = File.join(@dir, "s")
    @server = UNIXServer.new(@path)
    @output = StringIO.new
    @tracer_control = tracer_control
  end

  def teardown
    @tracer_control.stop
    # The thread of a tracer that another one followed finds out by itself.
    eventually { tracer_threads.empty? }
    @server.close
    FileUtils.remove_entry(@dir)
  end

  def test_a_start_uses_the_configuration_and_the_settings_of_the_command
    header, = order("start", "every" => 3)
    assert_equal({ every: 3, duty: 0.05, window_ms: 10.0, samples_max: 1024, stacks_max: 64, depth_max: 16, worker: 2 },
                 Tracer.all.last.settings)
    assert_equal [2, Process.pid, true, true, false, 3],
                 header.values_at("worker", "pid", "ok", "running", "already", "every")
    assert_includes @output.string, "profiling allocations  every=3 duty=0.05 window_ms=10.0"
  end

  def test_a_second_start_leaves_a_running_tracer_alone
    order("start", "every" => 3)
    assert_equal [true, 3], order("start").first.values_at("already", "every")
    assert_equal 1, Tracer.all.size
    assert_equal [false, 5], order("start", "every" => 5).first.values_at("already", "every")
    assert_equal [false, true], Tracer.all.map(&:running?)
  end

  def test_a_thread_opens_windows_while_tracing
    assert_empty tracer_threads
    order("start")
    tracer = Tracer.all.last
    3.times { tracer.open }
    eventually { tracer.windows == 3 }
    assert_equal 1, tracer_threads.size
    assert_equal [false, false], order("stop").first.values_at("already", "running")
    eventually { tracer_threads.empty? }
    assert_equal true, order("stop").first["already"]
  end

  def test_an_error_in_a_window_ends_tracing
    order("start")
    tracer = Tracer.all.last
    tracer.fault = "torn"
    tracer.open
    eventually { !tracer.running? }
    eventually { @output.string.include?("profiling has ended after an error") }
    refute order("status").first["running"]
  end

  def test_the_profile_is_kept_after_a_stop_until_the_next_start
    header, = order("report")
    assert_equal [false, "it has not profiled yet; run `chaton profile start`"], header.values_at("ok", "error")
    order("start")
    order("stop")
    header, body = order("report")
    assert_equal header["bytes"], body.bytesize
    assert_equal ["häuser"], JSON.parse(body).keys
    refute header["running"]
  end

  def test_reports_are_bounded
    order("start")
    reports = Array.new(Chaton::Memory::TracerControl::REPORTS_MAX) { send_order("report") && @server.accept }
    assert_match(/busy with other reports/, order("report").first["error"])
    reports.each(&:read)
    eventually { Thread.list.none? { |thread| thread.name == "chaton profile report" } }
    assert order("report").first["ok"]
  ensure
    reports&.each(&:close)
  end

  def test_a_refusal_gives_the_reason
    assert_equal [false, "every is 0 (ArgumentError)"],
                 order("start", "every" => 0).first.values_at("ok", "error")
    assert_match(/the tracer cannot dance/, order("dance").first["error"])
    order("start")
    Tracer.all.last.fault = "no memory"
    assert_match(/no memory/, order("report").first["error"])
  end

  def test_a_reply_without_a_listener_is_only_logged
    @server.close
    @tracer_control.call("action" => "status", "reply_to" => @path)
    @tracer_control.call("action" => "status", "reply_to" => "/no/such")
    @tracer_control.call("action" => "status", "reply_to" => "/#{"x" * 200}")
    assert_equal 3, @output.string.scan(/DEBUG a reply was not received/).size, @output.string
    @server = UNIXServer.new("#{@path}2")
  end

  def test_tracing_starts_with_the_process_if_configured
    @tracer_control.start_if_configured
    assert_empty Tracer.all
    other = tracer_control(trace: true)
    other.start_if_configured
    assert_predicate Tracer.all.last, :running?
    other.stop
    refute_predicate Tracer.all.last, :running?
    assert_empty tracer_threads
  end

  private

  def tracer_control(trace: false)
    memory = Memory.new(trace, 64, 0.05, 10.0, 1024, 64, 16)
    Chaton::Memory::TracerControl.new(Plan.new(memory), worker: 2, tracer: Tracer,
                                                        log: Chaton::Telemetry::Log.new(io: @output, level: :debug))
  end

  def send_order(action, **settings)
    @tracer_control.call({ "do" => "ask", "action" => action, "reply_to" => @path,
                           **settings.transform_keys(&:to_s) })
    true
  end

  # @return [Array(Hash, String)]
  def order(action, settings = {})
    send_order(action, **settings)
    client = @server.accept
    line, newline, body = client.read.partition("\n")
    assert_equal "\n", newline
    [JSON.parse(line), body]
  ensure
    client&.close
  end

  def tracer_threads = Thread.list.select { |thread| thread.name == "chaton tracer" }

  def eventually
    sleep 0.001 until yield
  end
end
