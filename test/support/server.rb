# frozen_string_literal: true

require "fileutils"
require "json"
require "open3"
require "rbconfig"
require "tmpdir"
require "chaton/control"
require "chaton/config"
require "chaton/memory/launch_settings"
require_relative "compiled_cache"
require_relative "http_client"
require_relative "output"

# The real `exe/chaton` in a scratch directory with an inline application and
# configuration, driven over real sockets.
#
#   class StopTest < Minitest::Test
#     include ServerTest
#
#     def test_it_stops
#       server = boot(rackup: 'run ->(_) { [200, {}, ["hi"]] }', config: "workers 2")
#       assert_equal "hi", server.get("/").body
#       assert_equal 0, server.stop
#     end
#   end
#
# The processes of a test are killed by their pids afterwards. The directory with the whole log stays when the test
# failed.
class Server
  EXE = File.expand_path("../../exe/chaton", __dir__)
  LIB = File.expand_path("../../lib", __dir__)
  WAIT_S = 60
  # Between two looks of {#eventually}, as a multiple of the time that a look took, and in seconds.
  PAUSE_OF_LOOK = 4
  PAUSE_S = (0.01..0.2)
  HELLO = 'run ->(_env) { [200, { "content-type" => "text/plain" }, ["hello"]] }'

  Late = Output::Late

  # Variables of allocators.
  ALLOCATOR = /\A(?:LD_PRELOAD\z|MALLOC_|CHATON_ALLOCATOR)/

  # @return [Hash{String=>String}] variables of the allocator that a server would choose. With them its first start
  #   does not execute itself again and takes a quarter less processor time. A test that sets such a variable itself
  #   does not get them.
  def self.allocator
    @allocator ||= begin
      choice = Chaton::Memory::Allocator.new(:auto, env: {}, mapped: []).choice
      plan = Chaton::Config.load({ config_file: Chaton::Config::Loader::NO_FILE }, env: {})
      preloaded = [choice.path, Chaton::CpuAffinity.library(plan)].compact
      { **(preloaded.any? ? { "LD_PRELOAD" => preloaded.join(":") } : {}), **choice.env }.freeze
    end
  end

  attr_reader :dir, :pid

  # @param rackup [String, nil] text of config.ru
  # @param config [String] text of config/chaton.rb; a bind is added unless it has one
  # @param env [Hash{String=>String, nil}]
  # @param args [Array<String>] arguments of the command
  # @param inherit [Hash{Integer=>IO}] descriptors handed to the process
  def initialize(rackup: HELLO, config: "", env: {}, args: [], inherit: {})
    @dir = Dir.mktmpdir("chaton-test")
    @args = args
    # The scratch directory also has the cache for the next start.
    @env = { **CompiledCache.variables, "WEB_CONCURRENCY" => nil, "PORT" => nil, "RACK_ENV" => "production",
                                        "XDG_CACHE_HOME" => File.join(@dir, "cache"),
                                        **(env.keys.grep(ALLOCATOR).any? ? {} : Server.allocator) }.merge(env)
    @inherit = inherit
    @seen = []
    write("config.ru", rackup) if rackup
    config = "bind \"tcp://127.0.0.1:0\"\n#{config}" unless config.match?(/^\s*bind /)
    write("config/chaton.rb", config)
  end

  # @param path [String] relative to the scratch directory
  # @param text [String]
  def write(path, text)
    full = File.join(@dir, path)
    FileUtils.mkdir_p(File.dirname(full))
    File.write(full, text)
  end

  # Loads a library of the test into the process. Call it before {#start}.
  def preload(library)
    @env["LD_PRELOAD"] = library
  end

  def read(path)
    File.read(File.join(@dir, path))
  end

  def path(name)
    File.join(@dir, name)
  end

  # @return [self]
  def start
    pipe, input = IO.pipe
    @pid = Process.spawn(@env, *command, chdir: @dir, out: input, err: input, **@inherit)
    @seen << @pid
    input.close
    @output = Output.new(pipe)
    @waiter = Process.detach(@pid)
    self
  end

  # @return [self]
  def ready
    wait_line(/ ready  listen=|"message":"ready"/)
    self
  end

  # Runs a `chaton` command in a process of its own, in the server's directory.
  #
  # @param env [Hash{String=>String, nil}] beside the server's
  # @return [(String, String, Integer)] output, errors, exit status
  def run_command(*words, input: "", env: {})
    out, err, status = Open3.capture3(@env.merge(env), RbConfig.ruby, "-I", LIB, EXE, *words,
                                      chdir: dir, stdin_data: input)
    [out, err, status.exitstatus]
  end

  # @return [Integer] of the first TCP bind; the server may answer before its line has been read
  def port
    bind = %r{tcp://[^ "]+?:(\d+)}
    wait_line(bind)[bind, 1].to_i
  end

  # @return [String] the output so far
  def log
    @output ? @output.text : ""
  end

  # Waits for a line of output.
  #
  # @param pattern [Regexp]
  # @param count [Integer] how many lines must match
  # @return [String] the last of them
  def wait_line(pattern, count: 1, timeout_s: WAIT_S)
    @output.wait_line(pattern, count: count, timeout_s: timeout_s)
  end

  # Waits until the block is true. A look that takes long is repeated less often, because it takes the time of the
  # processes that it looks at.
  #
  # @return [Object] the block's value
  def eventually(what, timeout_s: WAIT_S)
    deadline = now + timeout_s
    loop do
      began = now
      value = yield
      return value if value
      raise Late, "not within #{timeout_s} s: #{what}; the log:\n#{log}" if now > deadline

      sleep(((now - began) * PAUSE_OF_LOOK).clamp(PAUSE_S))
    end
  end

  # @return [Array<String>] the state of each thread of a process: "S" sleeps, "R" runs, "T" is stopped (proc(5))
  def thread_states(pid)
    Dir.glob("/proc/#{pid}/task/*/stat").filter_map do |path|
      File.read(path)[/\) (\w)/, 1]
    rescue Errno::ENOENT, Errno::ESRCH
      nil # The thread has ended.
    end
  end

  def get(path = "/", **options)
    HttpClient.open(port) { |client| client.get(path, **options) }
  end

  # @return [Hash{String=>Object}]
  def status
    control("status")
  end

  # @return [String] path; its name depends on the roles
  def control_socket
    Dir[path("tmp/chaton*.sock")].first || path("tmp/chaton.sock")
  end

  def control(command)
    Chaton::Control::Client.new(control_socket).call(command)
  end

  # @return [Array<Integer>] pids of the workers by number
  def workers
    found = status["workers"].sort_by { |worker| worker["worker"] }.map { |worker| worker["pid"] }.compact
    @seen |= found
    found
  end

  def signal(name, pid = @pid)
    Process.kill(name, pid)
  end

  # Sends a signal and waits for the end.
  #
  # @return [Integer, String] exit status, or the signal that ended it
  def stop(name = "TERM", timeout_s: WAIT_S)
    signal(name)
    wait_exit(timeout_s: timeout_s)
  end

  # @return [Integer, String]
  def wait_exit(timeout_s: WAIT_S)
    raise Late, "the server has not ended within #{timeout_s} s; the log:\n#{log}" unless @waiter.join(timeout_s)

    # The last lines may still be in the pipe. A remaining child keeps the pipe open.
    @output.ended?(1)
    status = @waiter.value
    status.exitstatus || "SIG#{Signal.signame(status.termsig)}"
  end

  # Waits until every process that writes to our pipe has ended.
  def wait_all_gone(timeout_s: WAIT_S)
    raise Late, "a process is still there after #{timeout_s} s; the log:\n#{log}" unless @output.ended?(timeout_s)
  end

  def alive?(pid = @pid)
    Process.kill(0, pid)
    # A zombie has ended, too.
    !File.read("/proc/#{pid}/stat").match?(/\) Z /)
  rescue Errno::ESRCH, Errno::ENOENT
    false
  end

  # Kills the processes of this server by their pids.
  #
  # @param keep [Boolean] whether to keep the directory
  def close(keep: false)
    note_children
    @seen.each { |pid| end_process(pid) }
    @output&.ended?(5)
    File.write(path("output.log"), log)
    keep ? warn("kept: #{@dir}") : FileUtils.remove_entry(@dir)
  end

  # @return [Array<String>]
  def command
    [RbConfig.ruby, "-I", LIB, EXE, *@args]
  end

  private

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  def note_children
    @seen |= File.read("/proc/#{@pid}/task/#{@pid}/children").split.map(&:to_i) if @pid && alive?
  rescue SystemCallError
    nil
  end

  # Kills a process only if it runs in our directory, because the kernel may have reused the pid.
  def end_process(pid)
    return unless alive?(pid) && File.identical?("/proc/#{pid}/cwd", @dir)

    Process.kill("KILL", pid)
  rescue SystemCallError
    nil
  end
end

# For tests with servers, which end after each test.
module ServerTest
  # @return [Server] started, not yet ready
  def launch(**options)
    server = Server.new(**options)
    (@servers ||= []) << server
    yield server if block_given?
    server.start
  end

  # @return [Server] ready
  def boot(**options, &block)
    launch(**options, &block).ready
  end

  def teardown
    (@servers || []).each { |server| server.close(keep: !passed?) }
    super
  end
end
