# frozen_string_literal: true

require "test_helper"
require "etc"
require "json"
require "chaton/ruby_release"
require "support/server"

# Threads that take turns at Ruby's lock run on one core, and what they start does not.
class CpuAffinityTest < Minitest::Test
  include ServerTest

  # Pages give the lock up 400 times, for moments. /look does, and starts threads and programs. /large computes for long
  # without the lock.
  APP = <<~'RUBY'
    require "json"
    require "pty"
    require "zlib"
    SMALL, LARGE = Zlib.deflate("x" * 500), "ab1" * 300_000
    STATUS = "/proc/thread-self/status"
    COMMAND = "sed -n s/Cpus_allowed_list:.//p #{STATUS}"
    def cores = File.read(STATUS)[/^Cpus_allowed_list:\s*(\S+)/, 1]
    def page = 400.times { Zlib.inflate(SMALL); 50.times { "a" * 10 } }
    def read = IO.pipe.then { |output, input| yield input; input.close; output.read.strip }
    STARTS = {
      thread: -> { Thread.new { cores }.value },
      backtick: -> { `#{COMMAND}`.strip },
      system: -> { read { |input| system(COMMAND, out: input) } },
      daemon: -> { read { |input| system("(#{COMMAND}) & exit 0", out: input) } },
      spawn: -> { read { |input| Process.wait(spawn(*COMMAND.split, out: input)) } },
      popen: -> { IO.popen(COMMAND, &:read).strip },
      pty: -> { PTY.spawn(COMMAND) { |output,| break output.gets.strip } },
      fork: -> { read { |input| Process.wait(fork { input.write(cores); exit! }) } },
      fork_that_starts: -> { read { |input| Process.wait(fork { input.write(`#{COMMAND}`); exit! }) } }
    }
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/large" then 10.times { Zlib.deflate(LARGE, 1) }
      when "/look"
        seen = STARTS.map { |name, start| page; [name, cores, start.call] }
        return [200, {}, [JSON.generate(seen)]]
      else page
      end
      [200, {}, [cores]]
    end)
  RUBY

  # An older Ruby does not tell which thread has the lock.
  BINDS = Chaton::RubyRelease.gvl_events? && Etc.nprocessors > 1

  def setup = @all = File.read("/proc/self/status")[/^Cpus_allowed_list:\s*(\S+)/, 1]

  # Eight clients while the block runs.
  def under_load(server, path)
    stop = false
    clients = Array.new(8) { Thread.new { server.get(path) until stop } }
    yield
  ensure
    stop = true
    clients.each(&:join)
  end

  def cores(server) = server.get("/").body

  def assert_bound(server)
    return 50.times { assert_equal @all, cores(server) } unless BINDS
    server.eventually("a thread is bound") { cores(server) != @all }
  end

  def test_threads_that_take_turns_have_one_core
    [0, 2].each do |workers|
      server = boot(rackup: APP, config: "workers #{workers}")
      assert_equal @all, cores(server)
      under_load(server, "/") { assert_bound(server) }
      server.eventually("the threads are free") { cores(server) == @all }
      assert_equal 0, server.stop
    end
  end

  def test_what_they_start_has_all
    server = boot(rackup: APP, config: "workers 0")
    # The threads are free now and then, so one look may find some of them free.
    from_bound = []
    under_load(server, "/") do
      server.eventually("each start is seen from a bound thread") do
        looks = JSON.parse(server.get("/look").body)
        assert_equal [@all], looks.map(&:last).uniq, looks
        from_bound |= looks.reject { |_, bound, _| bound == @all }.map(&:first)
        from_bound.size == (BINDS ? looks.size : 0)
      end
    end
    assert_equal 0, server.stop
  end

  def test_work_without_the_lock_keeps_all_cores
    server = boot(rackup: APP, config: "workers 0")
    under_load(server, "/large") { 50.times { assert_equal @all, server.get("/large").body } }
    assert_equal 0, server.stop
  end

  def test_it_can_be_switched_off
    server = boot(rackup: APP, config: "workers 0\ncpu_affinity false")
    under_load(server, "/") { 50.times { assert_equal @all, cores(server) } }
    assert_equal 0, server.stop
  end
end
