# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "stringio"
require "tmpdir"
require "chaton/config"
require "chaton/memory/launch"
require "chaton/telemetry/log"

class LaunchTest < Minitest::Test
  Memory = Chaton::Memory
  # Nothing else is preloaded.
  ONLY_THE_ALLOCATOR = { cpu_affinity: false }.freeze

  def setup
    @before = Dir.pwd
    @root = File.realpath(Dir.mktmpdir("chaton-launch"))
    Dir.chdir(@root)
    File.write("program.rb", "")
    FileUtils.cp(File.expand_path("../../../lib/chaton/#{Memory::Library::BUNDLED}", __dir__), "libjemalloc.so.2")
    @env = { "PATH" => ENV.fetch("PATH"), Memory::Library::VARIABLE => @root, "HOME" => @root }
    @out = StringIO.new
    @calls = []
  end

  def teardown
    Dir.chdir(@before)
    FileUtils.remove_entry(@root)
  end

  def launch(argv = %w[-w 1], env: @env, program: "program.rb", &exec)
    exec ||= ->(*arguments, **options) { @calls << [arguments, options] }
    Memory::Launch.new(argv, env: env, program: program, exec: exec)
  end

  def plan(**given)
    Chaton::Config.load({ environment: "production", **ONLY_THE_ALLOCATOR, **given }, env: {}, root: @root)
  end

  def log = Chaton::Telemetry::Log.new(io: @out, level: :debug)

  def test_a_process_executes_itself_once
    first = launch
    refute_predicate first, :relaunched?
    Dir.mkdir("elsewhere")
    Dir.chdir("elsewhere") { first.go(plan, log) }
    (environment, *command), options = @calls.fetch(0)
    assert_equal [RbConfig.ruby, "-I", File.expand_path("lib", @before), "#{@root}/program.rb", "-w", "1"], command
    assert_equal({ unsetenv_others: true, close_others: false, chdir: @root }, options)
    assert_equal "#{@root}/libjemalloc.so.2", environment["LD_PRELOAD"]
    assert_equal @env, environment.slice(*@env.keys)
    assert_empty @out.string, "it speaks in its second life"

    second = launch(env: environment)
    assert_predicate second, :relaunched?
    assert_equal @env, environment, "the variables are put back"
    second.go(plan, log)
    assert_equal 1, @calls.size, "it never executes itself twice"
  end

  def test_after_exec_the_choice_is_logged
    launch.go(plan, log)
    launch(env: @calls[0][0][0]).go(plan, log)
    # This process has not been executed again, so the library is not loaded.
    assert_match(/WARN  .*libjemalloc.so.2 was preloaded, but is not loaded in this process/, @out.string)
    assert_match(/DEBUG heap: first start of this bundle/, @out.string)
    refute_match(/allocator: jemalloc/, @out.string)
  end

  def test_another_process_with_the_variables_is_not_relaunched
    launch.go(plan, log)
    environment = @calls[0][0][0]
    environment[Memory::Environment::VARIABLE] = environment[Memory::Environment::VARIABLE]
      .sub(Process.pid.to_s, (Process.pid + 1).to_s)
    other = launch(env: environment)
    refute_predicate other, :relaunched?
    assert_equal @env, environment
  end

  def test_one_process_in_development_is_not_executed_again
    launch.go(plan(environment: "development"), log)
    assert_empty @calls
    assert_match(/DEBUG allocator and heap sizes are unchanged: a single process in development/, @out.string)
    launch.go(plan(environment: "development", workers: "1"), log)
    assert_equal 1, @calls.size
  end

  def test_a_program_without_a_file_is_not_executed_again
    launch(program: "-e").go(plan, log)
    assert_empty @calls
    assert_match(/-e is not a file that can be executed again/, @out.string)
  end

  def test_without_changes_the_process_is_not_executed_again
    FileUtils.rm("libjemalloc.so.2")
    @env["MALLOC_ARENA_MAX"] = "2"
    launch.go(plan, log)
    assert_empty @calls
    assert_match(/INFO  allocator: .*chosen because there is no usable jemalloc/, @out.string)
  end

  def test_a_missing_allocator_is_warned_about
    FileUtils.rm("libjemalloc.so.2")
    @env["MALLOC_ARENA_MAX"] = "2"
    launch.go(plan(allocator: "mimalloc"), log)
    assert_match(/WARN  allocator: .*no usable mimalloc in #{@root}/, @out.string)
  end

  def test_a_failed_exec_is_logged
    forbidden = launch { |*, **options| Dir.chdir(options[:chdir]).then { raise Errno::EPERM, "execve" } }
    Dir.mkdir("elsewhere")
    Dir.chdir("elsewhere")
    forbidden.go(plan, log)
    assert_match(/WARN  the process cannot execute itself again; .*Operation not permitted/, @out.string)
    assert_equal "#{@root}/elsewhere", Dir.pwd
  end

  # The kernel's command line includes Ruby's own arguments.
  def test_the_command_line_of_the_kernel_is_used
    lib = File.expand_path("lib", @before)
    File.write("program.rb", <<~RUBY)
      require "chaton/memory/launch"
      require "chaton/config"
      launch = Chaton::Memory::Launch.new(ARGV, exec: ->(_env, *command, **) { puts command })
      launch.go(Chaton::Config.load({ environment: "production" }), nil)
    RUBY
    command = [RbConfig.ruby, "-W1", "-I", lib, "program.rb", "serve", "--x"]
    assert_equal command, IO.popen([@env, *command], &:readlines).map(&:chomp)
  end
end
