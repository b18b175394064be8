# frozen_string_literal: true

require "test_helper"
require "io/console"
require "pty"
require "support/raw_client"
require "chaton/cli"
require "chaton/cli/top"
require "chaton/cli/top/screen"
require "support/server"

# `chaton top` on a real terminal.
class TopTest < Minitest::Test
  include ServerTest

  APP = <<~RUBY
    run(lambda do |env|
      sleep 0.01 until env["PATH_INFO"] != "/slow" || File.exist?("open")
      [200, {}, ["fine"]]
    end)
  RUBY

  # A terminal in which `chaton top` runs, and what it has drawn.
  class Terminal
    WAIT_S = 60
    OPEN = Chaton::CLI::Top::Screen::OPEN
    CLOSE = Chaton::CLI::Top::Screen::CLOSE
    FRAME = /#{Regexp.escape(Chaton::CLI::Top::Screen::BEGIN_FRAME)}(.*?)#{
      Regexp.escape(Chaton::CLI::Top::Screen::END_FRAME)}/m

    attr_reader :pid, :output

    def initialize(server, env: {}, size: [30, 160])
      command = [RbConfig.ruby, "-I#{File.expand_path("lib")}", File.expand_path("exe/chaton"), "top",
                 "--control-socket", server.path("tmp/chaton.sock")]
      env = { "TERM" => "xterm-256color", "NO_COLOR" => nil, "LANG" => "C.UTF-8", **env }
      @master, @keys, @pid = PTY.spawn(env, *command)
      @master.winsize = size
      @output = +""
      @lock = Mutex.new
      @reader = Thread.new { read }
    end

    # The last frame that was drawn, without colours.
    def frame = drawn.gsub(/\e\[[\d;]*m/, "").gsub("\e[K", "").split(/\r+\n/, -1)

    def drawn = text.scan(FRAME).last&.first.to_s

    def text = @lock.synchronize { @output.dup.force_encoding(Encoding::UTF_8) }

    def press(key) = @keys.write(key)

    def resize(rows, columns) = @master.winsize = [rows, columns]

    # Waits until the block is true.
    def wait(what)
      deadline = now + WAIT_S
      until yield
        raise "not within #{WAIT_S} s: #{what}; the terminal has: #{text.inspect}" if now > deadline

        sleep 0.02
      end
    end

    def wait_for(pattern) = wait("to see #{pattern}") { frame.grep(pattern).any? }

    # @return [Process::Status]
    def status
      wait("the end") { @status || (@status = Process.wait2(@pid, Process::WNOHANG)&.last) }
      @status
    end

    # Whether keys are shown again, and the first screen.
    def restored? = text.end_with?(CLOSE) && @master.echo?

    def raw? = !@master.echo?

    def hang_up
      @reader.kill.join
      [@master, @keys].each(&:close)
    end

    def close
      Process.kill(:KILL, @pid) unless @status
      Process.wait(@pid) unless @status
    rescue Errno::ESRCH, Errno::ECHILD
      nil
    ensure
      hang_up
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def read
      loop { @master.readpartial(65_536).then { |bytes| @lock.synchronize { @output << bytes } } }
    rescue IOError, SystemCallError
      nil
    end
  end

  def teardown
    @terminal&.close
    super
  end

  def test_keys_choose_what_the_screen_shows
    server = boot(rackup: APP, config: "workers 2\nthreads 1..3")
    terminal = top(server)
    terminal.wait_for(/^worker +roles/)
    assert_equal 2, rows(terminal).size
    assert_operator terminal.text, :start_with?, Terminal::OPEN
    assert terminal.raw?
    assert_match(/\e\[1m.*\e\[0m/, terminal.drawn, "in colours")
    slow = RawClient.new(server.port)
    slow.write("GET /slow HTTP/1.1\r\nHost: h\r\nX-Request-Id: slow-7\r\n\r\n")
    terminal.wait_for(/1 of \d+ run work/)
    terminal.press("ss")
    terminal.wait_for(/by running, role all$/)
    terminal.wait("the busy one at the top") { rows(terminal).first&.match?(%r{ 1/\d}) }
    terminal.press("\r")
    terminal.wait_for(%r{ms +thread \d+ +cpu \d+ ms +GET /slow +request_id=slow-7$})
    terminal.press("\e")
    terminal.wait_for(/^worker +roles/)
    terminal.press("r")
    terminal.wait("the busy one at the end") { rows(terminal).last&.match?(%r{ 1/\d}) }
    terminal.press("ff")
    terminal.wait("no worker has the role jobs") { terminal.frame.last.include?("role jobs") && rows(terminal).empty? }
    terminal.press("q")
    assert_equal 0, terminal.status.exitstatus
    terminal.wait("the terminal as before") { terminal.restored? }
    server.write("open", "")
  ensure
    slow&.close
  end

  def test_a_signal_leaves_the_terminal_as_it_was
    server = boot(rackup: APP, config: "workers 0")
    terminal = top(server)
    terminal.wait_for(/^worker +roles/)
    Process.kill(:TERM, terminal.pid)
    assert_equal Signal.list["TERM"], terminal.status.termsig
    terminal.wait("the terminal as before") { terminal.restored? }
    terminal.close
    terminal = top(server)
    terminal.wait_for(/^worker +roles/)
    terminal.press("\u0003")
    assert_equal 0, terminal.status.exitstatus
    terminal.wait("the terminal as before") { terminal.restored? }
  end

  def test_it_stops_and_goes_on
    terminal = top(boot(rackup: APP, config: "workers 0"))
    terminal.wait_for(/^worker +roles/)
    # Ctrl-Z
    Process.kill(:TSTP, terminal.pid)
    terminal.wait("the terminal as before") { terminal.restored? }
    terminal.wait("its stop") { File.read("/proc/#{terminal.pid}/stat")[/\) (\w)/, 1] == "T" }
    Process.kill(:CONT, terminal.pid)
    terminal.wait("the screen again") { terminal.raw? && terminal.text.scan(Terminal::OPEN).size == 2 }
    terminal.press("q")
    assert_equal 0, terminal.status.exitstatus
  end

  def test_every_frame_fits_the_screen
    terminal = top(boot(rackup: APP, config: "workers 2"))
    terminal.wait_for(/^worker +roles/)
    [[5, 24], [1, 1], [40, 200]].each do |rows, columns|
      terminal.resize(rows, columns)
      terminal.wait("a frame of #{rows} rows") { terminal.frame.size == rows }
      terminal.wait("#{columns} columns") { terminal.frame.all? { |line| line.length <= columns } }
    end
  end

  def test_it_ends_with_its_terminal
    terminal = top(boot(rackup: APP, config: "workers 0"))
    terminal.wait_for(/^worker +roles/)
    terminal.hang_up
    assert terminal.status
  end

  def test_a_server_that_has_gone_is_waited_for
    server = boot(rackup: APP, config: "workers 0")
    terminal = top(server)
    terminal.wait_for(/^worker +roles/)
    assert_equal 0, server.stop
    terminal.wait_for(/no server listens at/)
    terminal.press("q")
    assert_equal 0, terminal.status.exitstatus
  end

  def test_colours_and_control_sequences_can_be_switched_off
    server = boot(rackup: APP, config: "workers 0")
    terminal = top(server, env: { "NO_COLOR" => "1" })
    terminal.wait_for(/^worker +roles/)
    refute_match(/\e\[[\d;]+m/, terminal.text)
    terminal.close
    terminal = top(server, env: { "TERM" => "dumb" })
    assert_equal 0, terminal.status.exitstatus
    terminal.wait("the text") { terminal.text.include?("listening on") }
    refute_includes terminal.text, "\e"
  end

  private

  def top(server, **options) = @terminal = Terminal.new(server, **options)

  # The lines of workers.
  def rows(terminal) = terminal.frame.grep(/^ *\d+ +web /)
end
