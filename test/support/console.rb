# frozen_string_literal: true

require "json"
require "rbconfig"

# A Ruby process of its own in an application's directory, as a console or a script is: it has the configuration
# and the job classes, and runs what it is told.
class Console
  WAIT_S = 60
  LIB = File.expand_path("../../lib", __dir__)

  # What the code raised there.
  class Raised < StandardError
    attr_reader :kind

    def initialize(kind, message)
      super(message)
      @kind = kind
    end
  end

  # What the process runs. Answers go to descriptor 3, so that nothing else gets between them.
  PROGRAM = <<~'RUBY'
    require "json"
    ARGV.each { |feature| require feature }
    answers = IO.for_fd(3)
    answers.sync = true
    while (line = $stdin.gets)
      answer = begin
        { "value" => eval(JSON.parse(line).fetch("code"), TOPLEVEL_BINDING) }
      rescue StandardError => e
        { "error" => e.class.name, "message" => e.message }
      end
      answers.puts(JSON.generate(answer))
    end
  RUBY

  attr_reader :pid

  # @param dir [String]
  # @param env [Hash{String=>String}]
  # @param requires [Array<String>] what it loads
  def initialize(dir, env: {}, requires: ["chaton", "./app/jobs/jobs"])
    @log = File.join(dir, "console.log")
    code, @input = IO.pipe
    @output, answers = IO.pipe
    @pid = Process.spawn({ "CHATON_CONFIG" => nil }.merge(env), RbConfig.ruby, "-I", LIB, "-e", PROGRAM, *requires,
                         chdir: dir, in: code, out: [@log, "a"], err: %i[child out], 3 => answers)
    @waiter = Process.detach(@pid)
    [code, answers].each(&:close)
  end

  # @param code [String] Ruby
  # @return [Object] its value, as JSON has it
  # @raise [Raised] what was raised there
  def run(code, timeout_s: WAIT_S)
    tell(code)
    answer(timeout_s: timeout_s)
  end

  # Does not wait for the end; {#answer} does.
  def tell(code)
    @input.puts(JSON.generate({ code: code }))
    @input.flush
    self
  end

  def answer(timeout_s: WAIT_S)
    raise "the console has not answered within #{timeout_s} s" unless @output.wait_readable(timeout_s)

    line = @output.gets or raise "the console has ended:\n#{File.read(@log)}"
    answer = JSON.parse(line, max_nesting: false)
    raise Raised.new(answer["error"], answer["message"]) if answer.key?("error")

    answer["value"]
  end

  def close
    Process.kill("KILL", @pid) if @waiter.alive?
    @waiter.join
    [@input, @output].each(&:close)
  rescue Errno::ESRCH
    nil
  end
end
