# frozen_string_literal: true

require "json"
require "rbconfig"
require_relative "compiled_cache"

# A Ruby process in an application's directory, like a console or a script. It loads the configuration and the job
# classes, and evaluates code.
class Console
  WAIT_S = 60
  LIB = File.expand_path("../../lib", __dir__)

  # The exception that the code raised in the console.
  class Raised < StandardError
    attr_reader :kind

    def initialize(kind, message)
      super(message)
      @kind = kind
    end
  end

  # The process's program. Results go to descriptor 3, so that no other output mixes with them.
  PROGRAM = <<~'RUBY'
    require "json"
    ARGV.each { |feature| require feature }
    results = IO.for_fd(3)
    results.sync = true
    while (line = $stdin.gets)
      result = begin
        { "value" => eval(JSON.parse(line).fetch("code"), TOPLEVEL_BINDING) }
      rescue StandardError => e
        { "error" => e.class.name, "message" => e.message }
      end
      results.puts(JSON.generate(result))
    end
  RUBY

  attr_reader :pid

  # @param dir [String]
  # @param env [Hash{String=>String}]
  # @param requires [Array<String>] features to load
  def initialize(dir, env: {}, requires: ["chaton", "./app/jobs/jobs"])
    @log = File.join(dir, "console.log")
    code, @input = IO.pipe
    @output, results = IO.pipe
    env = { **CompiledCache.variables, "CHATON_CONFIG" => nil, **env }
    @pid = Process.spawn(env, RbConfig.ruby, "-I", LIB, "-e", PROGRAM, *requires,
                         chdir: dir, in: code, out: [@log, "a"], err: %i[child out], 3 => results)
    @waiter = Process.detach(@pid)
    [code, results].each(&:close)
  end

  # @param code [String] Ruby
  # @return [Object] its value, converted through JSON
  # @raise [Raised] when the code raised
  def run(code, timeout_s: WAIT_S)
    start(code)
    result(timeout_s: timeout_s)
  end

  # Starts the code; {#result} waits for its end.
  def start(code)
    @input.puts(JSON.generate({ code: code }))
    @input.flush
    self
  end

  def result(timeout_s: WAIT_S)
    raise "the console has not responded within #{timeout_s} s" unless @output.wait_readable(timeout_s)

    line = @output.gets or raise "the console has ended:\n#{File.read(@log)}"
    result = JSON.parse(line, max_nesting: false)
    raise Raised.new(result["error"], result["message"]) if result.key?("error")

    result["value"]
  end

  def close
    Process.kill("KILL", @pid) if @waiter.alive?
    @waiter.join
    [@input, @output].each(&:close)
  rescue Errno::ESRCH
    nil
  end
end
