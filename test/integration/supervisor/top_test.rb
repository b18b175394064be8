# frozen_string_literal: true

require "test_helper"
require "io/console"
require "pty"
require "support/raw_client"
require "chaton/cli"
require "chaton/cli/top"
require "support/http_client"
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
    FRAME = /#{Regexp.escape(Chaton::CLI::Top::BEGIN_FRAME)}(.*?)#{Regexp.escape(Chaton::CLI::Top::END_FRAME)}/m

    attr_reader :pid

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
    def frame = drawn.gsub(/\e\[[\d;]*m/, "").gsub("\e[K", "").split(/\r+\n/)

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

  def test_it_shows_the_status_with_rates_and_what_the_workers_run
    server = boot(rackup: APP, config: "workers 2\nthreads 1..3")
    terminal = top(server)
    terminal.wait_for(%r{^requests -/s  jobs -/s  records -/s$})
    assert_equal 2, terminal.frame.grep(/^ *\d+ +web /).size
    assert_match(/\e\[1m.*\e\[0m/, terminal.drawn, "in colours")
    load = ClientLoad.new(server.port)
    terminal.wait_for(%r{^requests [1-9][\d,]*/s  jobs 0/s  records 0/s$})
    assert_empty load.stop.failures
    slow = RawClient.new(server.port)
    slow.write("GET /slow HTTP/1.1\r\nHost: h\r\nX-Request-Id: slow-7\r\n\r\n")
    terminal.wait_for(%r{^running: GET /slow  [\d,]+ ms  worker \d  thread \d+  request_id=slow-7$})
    server.write("open", "")
    terminal.wait("the end of the request") { terminal.frame.grep(/^running:/).empty? }
    terminal.press("\u0003")
    assert_equal 0, terminal.status.exitstatus
  ensure
    slow&.close
    load&.stop
  end

  def test_a_frame_has_no_more_lines_than_the_screen
    terminal = top(boot(rackup: APP, config: "workers 2"))
    terminal.wait_for(/^worker +roles/)
    terminal.resize(3, 24)
    terminal.wait("a short frame") { terminal.frame.size == 2 }
    assert terminal.text.end_with?(Chaton::CLI::Top::END_FRAME), "long lines are wrapped again"
  end

  def test_it_ends_with_its_terminal
    terminal = top(boot(rackup: APP, config: "workers 0"))
    terminal.wait_for(/^requests: 0 so far/)
    terminal.hang_up
    assert terminal.status
  end

  def test_a_server_that_has_gone_is_waited_for
    server = boot(rackup: APP, config: "workers 0")
    terminal = top(server)
    terminal.wait_for(/^requests: 0 so far/)
    assert_equal 0, server.stop
    terminal.wait_for(/no server listens at/)
    terminal.press("\u0003")
    assert_equal 0, terminal.status.exitstatus
  end

  def test_colours_and_control_sequences_can_be_switched_off
    server = boot(rackup: APP, config: "workers 0")
    terminal = top(server, env: { "NO_COLOR" => "1" })
    terminal.wait_for(/^requests: 0 so far/)
    refute_match(/\e\[[\d;]+m/, terminal.text)
    terminal.close
    terminal = top(server, env: { "TERM" => "dumb" })
    assert_equal 0, terminal.status.exitstatus
    terminal.wait("the text") { terminal.text.include?("listening on") }
    refute_includes terminal.text, "\e"
  end

  private

  def top(server, **options) = @terminal = Terminal.new(server, **options)
end
