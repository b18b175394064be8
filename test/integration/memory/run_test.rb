# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "open3"
require "rbconfig"
require "tmpdir"
require "support/bundle"

# `chaton run` with programs that succeed, fail, are killed, do not exist, or are not Ruby.
class RunTest < Minitest::Test
  EXE = File.expand_path("../../../exe/chaton", __dir__)
  LIB = File.expand_path("../../../lib", __dir__)
  BUNDLED = "#{LIB}/chaton/libchaton_jemalloc.so".freeze
  # Our variables of an environment.
  SHOW = 'puts (ENV.keys + IO.popen(["env"], &:readlines))' \
         '.grep(/\A(?:CHATON_(?:RUN|WAS)|LD_PRELOAD|MALLOC_|RUBYOPT|RUBY_GC_)/)'
  BUSY = "kept = Array.new(60_000) { |i| i.to_s }; 100.times { Array.new(5000) { Object.new } }; 4.times { GC.start }"

  def setup
    @dir = File.realpath(Dir.mktmpdir("chaton-run"))
    Dir.mkdir("#{@dir}/tmp")
    FileUtils.cp(BUNDLED, "#{@dir}/libjemalloc.so.2")
    @env = { "CHATON_ALLOCATOR_PATH" => @dir, "LD_PRELOAD" => nil, "MALLOC_CONF" => nil, "RUBYOPT" => nil }
  end

  def teardown = FileUtils.remove_entry(@dir)

  def command(*arguments) = [RbConfig.ruby, "-I", LIB, EXE, "run", *arguments]

  # @return [Array(String, String, Process::Status)]
  def run_program(*arguments, env: {}) = Open3.capture3({ **@env, **env }, *command(*arguments), chdir: @dir)

  def ruby(text, *options, env: {}) = run_program(*options, RbConfig.ruby, "-e", text, env: env)

  def test_a_ruby_program
    out, summary, status = ruby("#{BUSY}; print File.read(\"/proc/self/maps\").include?(\"#{@dir}/libjemalloc.so.2\")")
    assert_equal ["true", 0], [out, status.exitstatus]
    assert_match(/\Achaton run: #{RbConfig.ruby} ended with status 0$/, summary)
    assert_match(/^  \d+\.\d\d s; \d+\.\d\d s of CPU in it and \d+\.\d\d s in the system/, summary)
    assert_match(/at most \d+\.\d MiB$/, summary)
    assert_match(/Ruby #{RUBY_VERSION}: \d+ collections \(\d+ full\), \d+\.\d ms; [\d,]+ objects alive/, summary)
    assert_match(/allocator: jemalloc 5.3.1 .*one arena/, summary)
    assert_match(/the next run is sized by this one/, summary)
    assert_match(/heap: sized by a run \d+ seconds ago; eden/, ruby(BUSY)[1])
  end

  def test_subprocesses_do_not_inherit_our_variables
    ruby(BUSY)
    out, = ruby(SHOW)
    assert_equal "", out
    out, = ruby(SHOW, env: { "RUBYOPT" => "-W0", "MALLOC_CONF" => "narenas:3" })
    assert_equal %w[MALLOC_CONF MALLOC_CONF=narenas:3 RUBYOPT RUBYOPT=-W0], out.split.sort
  end

  def test_the_status_of_the_program_is_returned
    assert_equal 3, ruby("exit 3")[2].exitstatus
    out, summary, status = ruby("print 1; $stdout.flush; raise 'no luck'")
    assert_equal ["1", 1], [out, status.exitstatus]
    assert_match(/no luck \(RuntimeError\)/, summary)
    _, summary, status = ruby("Process.kill(:KILL, Process.pid)")
    assert_equal 137, status.exitstatus
    assert_match(/ended with signal KILL/, summary)
    assert_equal 127, run_program("no-such-program")[2].exitstatus
    assert_equal ["", 0], ruby("1", "--quiet").values_at(1, 2).then { |text, ended| [text, ended.exitstatus] }
  end

  def test_a_program_that_is_not_ruby
    out, summary, status = run_program("--", "sh", "-c", "read line; echo \"$line\"; exit 4", env: {})
    assert_equal ["\n", 4], [out, status.exitstatus]
    refute_match(/collections/, summary)
    out, summary, = run_program("sh", "-c", "#{RbConfig.ruby} -e '#{SHOW}'; exit 0")
    assert_equal "", out
    assert_match(/Ruby #{RUBY_VERSION}: /, summary, "the Ruby inside is seen")
  end

  def test_options
    assert_match(/allocator: glibc, 2 arenas; chosen because the conf/, ruby("1", "--allocator", "system")[1])
    ruby(BUSY)
    assert_match(/eden 64.0 MiB: as configured/, ruby(BUSY, "--eden", "64M")[1])
    FileUtils.rm("#{@dir}/libjemalloc.so.2")
    assert_match(/\Achaton run: allocator: glibc.* no usable mimalloc/, ruby("1", "--allocator=mimalloc")[1])
  end

  def test_the_other_allocator
    out, summary, = ruby("print File.read(\"/proc/self/maps\").include?(\"mimalloc\")", "--allocator", "mimalloc",
                         env: { "CHATON_ALLOCATOR_PATH" => nil })
    assert_equal "true", out, "libmimalloc is missing; bin/setup installs it"
    assert_match(/allocator: mimalloc \d/, summary)
  end

  # A program may ask whether its descriptors are its own; a forked child says nothing in its name.
  def test_the_descriptors_of_the_program_are_not_touched
    out, summary, = ruby("fork { exit 5 }; Process.wait; print $?.exitstatus; at_exit { print ' last' }")
    assert_equal "5 last", out
    assert_equal 1, summary.scan("collections").size
    out, = ruby("(3..30).each { |fd| IO.for_fd(fd).close rescue 0 }; reader, writer = IO.pipe; print 'done'; " \
                "at_exit { writer.close }; END { }")
    assert_equal "done", out
    assert_equal "false", ruby("print [defined?(JSON), defined?(Chaton)].any?")[0]
  end

  def test_signals_are_forwarded
    program = <<~'RUBY'
      say = ->(name) { $stdout.syswrite("#{name}\n") }
      %w[INT HUP USR1 USR2 TSTP TTIN QUIT CONT WINCH].each { |name| trap(name) { say.call(name) } }
      trap("TERM") { say.call("TERM"); exit 9 }
      say.call("ready")
      sleep
    RUBY
    Open3.popen2(@env, *command("--quiet", RbConfig.ruby, "-e", program), chdir: @dir) do |_, out, waiter|
      assert_equal "ready\n", out.gets
      %w[INT HUP USR1 USR2 TSTP TTIN QUIT CONT WINCH TERM].each do |name|
        Process.kill(name, waiter.pid)
        assert_equal "#{name}\n", out.gets
      end
      assert_equal 9, waiter.value.exitstatus
    end
  end

  def test_a_program_that_a_signal_ends
    Open3.popen2(@env, *command("--quiet", "sh", "-c", "echo ready; exec sleep 60"), chdir: @dir) do |_, out, waiter|
      assert_equal "ready\n", out.gets
      Process.kill("TERM", waiter.pid)
      assert_equal 143, waiter.value.exitstatus
    end
  end

  # A path below a file cannot be created.
  def test_nowhere_to_keep_a_reading
    FileUtils.rm_rf("#{@dir}/tmp")
    _, _, status = ruby(BUSY, env: { "HOME" => "/dev/null", "XDG_CACHE_HOME" => "/dev/null/x" })
    assert_equal 0, status.exitstatus
  end

  def test_under_bundler
    File.write("#{@dir}/Gemfile", "gem \"rack\"\n")
    mapped = "puts File.read(\"/proc/self/maps\").include?(\"#{@dir}\")"
    File.write("#{@dir}/program", "#!/usr/bin/env ruby\n#{BUSY}\n#{SHOW}\n#{mapped}\n")
    File.chmod(0o755, "#{@dir}/program")
    [["./program"], [RbConfig.ruby, "program"]].each do |program|
      out, summary, status = run_program(Bundle.command, "exec", *program)
      assert_equal 0, status.exitstatus, summary
      lines = out.lines.map(&:chomp)
      assert_equal "true", lines.pop, "the library is in it"
      assert_equal(["RUBYOPT"], lines.map { |line| line[/\A\w+/] }.uniq)
      assert(lines.all?(/\ARUBYOPT(?:=-r\S*bundler.setup)?\z/), lines.inspect)
      assert_match(/Ruby #{RUBY_VERSION}: \d+ collections/, summary)
    end
  end
end
