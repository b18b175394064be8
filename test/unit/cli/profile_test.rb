# frozen_string_literal: true

require_relative "cli_case"
require "chaton/cli/profile"
require "chaton/cli/profile/answer_socket"
require "chaton/native"
require "json"
require "socket"

# `chaton profile …` against a control socket and workers of this file.
class CLITraceTest < CLICase
  STATUS = { running: true, seconds: 12.34, windows: 61, sampled: 12_345, live_samples: 1_234,
             profile_bytes: 3 << 20, every: 64, duty: 0.05, window_ms: 10.0 }.freeze
  PROFILE = JSON.generate({ "a" => "é" })

  # A terminal of a few rows.
  class Terminal < StringIO
    def tty? = true
    def winsize = [5, 30]
  end

  def setup
    super
    @asked = []
    # Number of a worker => what it sends; nil: it goes without a word.
    @workers = { 0 => answer(0), 1 => answer(1, already: true) }
    @server = UNIXServer.new("control.sock")
    @thread = Thread.new { loop { serve(@server.accept) } }
    @rendered = []
  end

  def teardown
    @thread.kill.join
    @server.close
    assert_equal %w[config.ru control.sock], Dir.children(@root).sort - @made.to_a, "the socket is gone"
    super
  end

  def test_start
    status, out, err = profile("start", "--every", "3", "--duty=0.5")
    assert_equal [0, ""], [status, err]
    assert_equal [3, 0.5, nil], @asked.last.values_at("every", "duty", "worker")
    assert_equal ["worker 0 (pid 100) profiles: 1 of 64 objects, 5.0 % of the time, in windows of 10.0 ms",
                  "worker 1 (pid 101) was profiling already: 1 of 64 objects, 5.0 % of the time, in windows of " \
                  "10.0 ms"],
                 out.lines.map(&:chomp)
    refute_includes @asked.last.keys, "window_ms"
    profile("start", "--worker", "1")
    assert_equal 1, @asked.last["worker"]
  end

  def test_stop
    assert_equal "worker 0 (pid 100) has stopped; `chaton profile report` has what it saw\n" \
                 "worker 1 (pid 101) did not profile\n", profile("stop")[1]
  end

  def test_status
    assert_match(/^ *worker +pid +profiles.*\n +0 +100 +yes +12.34 +61 +12,345 +1,234 +3.0 MiB$/, profile("status")[1])
    assert_equal [100, 101], JSON.parse(profile("status", "--json")[1]).map { |one| one["pid"] }
  end

  def test_those_that_answer_are_shown_and_the_others_named
    @workers = { 0 => answer(0), 1 => nil, 2 => answer(2, ok: false, error: "no room"), 3 => "{\"worker\":3" }
    status, out, err = profile("stop")
    assert_equal [0, 1], [status, out.lines.size]
    assert_match(/worker 2 \(pid 102\): no room/, err)
    [1, 3].each { |number| assert_match(/worker #{number} did not answer within/, err) }
    @workers = { 2 => answer(2, ok: false, error: "no room") }
    assert_equal [1, "", "chaton: worker 2 (pid 102): no room\n"], profile("stop")
  end

  def test_report
    render { assert_equal [0, "rendered", ""], profile("report") }
    assert_equal [[PROFILE] * 2, "text", "live"], @rendered.last[0..2]
    assert_equal "chaton, worker 0 (pid 100), worker 1 (pid 101)", @rendered.last[3]
    render { profile("report", "--format", "collapsed", "--by", "freed") }
    assert_equal %w[collapsed freed], @rendered.last[1..2]
  end

  def test_report_into_a_file_by_its_name
    @made = []
    formats = { "a.svg" => "svg", "a.pb.gz" => "pprof", "a.folded" => "collapsed", "a.txt" => "text", "a" => "text" }
    formats.each do |file, format|
      @made << file
      render { assert_equal "#{@root}/#{file}: 8 bytes\n", profile("report", "-o", file)[1] }
      assert_equal [format, "rendered"], [@rendered.last[1], File.read(file)]
    end
    render { profile("report", "--output", "a.svg", "--format", "text") }
    assert_equal "text", @rendered.last[1]
    render { assert_match(%r{no/such.svg cannot be written: No such file}, profile("report", "-o", "no/such.svg")[2]) }
  end

  def test_an_ending_without_a_format_says_what_to_write
    assert_match(/no format for \.html files; write --output FILE\.svg/, profile("report", "-o", "a.html")[2])
    assert_match(/no format for \.json files; write --output FILE\.collapsed/, profile("report", "-o", "a.json")[2])
    assert_empty @asked
  end

  def test_mistakes
    assert_match(/--format must be text, .*, not "ppof"; did you mean pprof\?/,
                 profile("report", "--format", "ppof")[2])
    assert_match(/--by must be live, allocated or freed, not "dead"/, profile("report", "--by", "dead")[2])
    assert_match(/--every must be a whole number from 1 to/, profile("start", "--every", "0")[2])
    assert_match(/no command "repot"; did you mean report\?/, chaton("profile", "repot")[2])
    assert_match(/--evry is not an option; did you mean --every\?/, profile("start", "--evry", "1")[2])
    assert_empty @asked
    @refusal = "there is no worker 7"
    assert_equal [1, "", "chaton: there is no worker 7\n"], profile("status", "--worker", "7")
  end

  def test_no_server
    status, _, err = chaton("profile", "start", "--control-socket", "#{@root}/none.sock")
    assert_equal 1, status
    assert_match(/\Achaton: no server listens at/, err)
  end

  def test_a_picture_is_not_for_a_terminal
    out = Terminal.new
    err = StringIO.new
    assert_equal 1, Chaton::CLI.start(%w[profile report --format svg], out: out, err: err)
    assert_equal "chaton: svg is not for a terminal; name a file: --output profile.svg\n", err.string
    assert_empty @asked
  end

  def test_an_answer_without_end
    socket.open(beside: "#{@root}/control.sock") do |box|
      texts = [answer(0), "#{answer(1)}#{"x" * 2000}", "y" * 2000]
      writers = texts.map { |text| Thread.new { send_answer({ "reply_to" => box.path }, text) } }
      answers = box.collect(3, 10, bytes_max: 1000).sort_by(&:worker)
      assert_equal [[0, nil], [1, "its answer is too long; profile for a shorter time"]],
                   answers.map { |one| [one.worker, one.error] }
      writers.each(&:join)
    end
  end

  def test_a_worker_without_an_answer_is_reported_after_the_timeout
    socket.open(beside: "#{@root}/control.sock") do |box|
      send_answer({ "reply_to" => box.path }, answer(0))
      assert_equal [0], box.collect(2, 0.05).map(&:worker)
    end
  end

  def test_a_long_path_is_answered_elsewhere
    long = File.join(@root, "d" * 80)
    FileUtils.mkdir_p(long)
    @made = ["d" * 80]
    socket.open(beside: File.join(long, "c")) do |box|
      assert_equal File.realpath(Dir.tmpdir), File.realpath(File.dirname(box.path, 2))
      assert_equal 0o700, File.stat(File.dirname(box.path)).mode & 0o777
    end
    socket.open(beside: File.join(@root, "c")) { |box| assert_equal @root, File.dirname(box.path, 2) }
    ENV["TMPDIR"] = long
    error = assert_raises(Chaton::ControlError) { socket.open(beside: File.join(long, "c")) { flunk } }
    assert_match(/set TMPDIR to a short one/, error.message)
    assert_empty Dir.children(long)
  end

  def test_help
    text = chaton("profile", "--help")[1]
    assert_equal text, chaton("profile")[1]
    assert_equal text, chaton("trace")[1], "its old name"
    assert_match(/memory { profile true }/, text)
    Chaton::CLI::Profile::ALL.each_key do |name|
      assert_match(/^  #{name}\b/, text)
      help = chaton("profile", name, "--help")[1]
      assert_match(/\Achaton profile #{name}: .*\n\nUsage: chaton profile #{name} \[options\]$/, help)
      assert_includes help, "--worker N"
    end
  end

  private

  def profile(*argv)
    chaton("profile", *argv, "--control-socket", "control.sock")
  end

  def socket = Chaton::CLI::Profile::AnswerSocket

  def render(&block)
    note = lambda do |*arguments|
      @rendered << arguments
      "rendered"
    end
    Chaton::Native.stub(:render_profile, note, &block)
  end

  def answer(number, **more)
    "#{JSON.generate({ worker: number, pid: 100 + number, ok: true, bytes: 0, already: false, **STATUS, **more })}\n"
  end

  def serve(client)
    @asked << (request = JSON.parse(client.gets))
    return client.puts JSON.generate({ ok: false, error: @refusal }) if @refusal

    client.puts JSON.generate({ ok: true, asked: @workers.keys })
    @workers.each_value { |text| send_answer(request, text) }
  ensure
    client.close
  end

  # In two pieces, as large ones come.
  def send_answer(request, text)
    if request["action"] == "report"
      header, = text.lines
      text = "#{JSON.generate(JSON.parse(header).merge("bytes" => PROFILE.bytesize))}\n#{PROFILE}"
    end
    UNIXSocket.open(request["reply_to"]) do |socket|
      socket.write(text.byteslice(0, 30)) if text
      socket.write(text.byteslice(30..)) if text&.bytesize.to_i > 30
    end
  rescue Errno::EPIPE
    # It has read enough.
    nil
  end
end
