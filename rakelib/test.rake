# frozen_string_literal: true

require "etc"
require "json"
require_relative "../ext/chaton/toolchain"
require_relative "support/rails_tests"
require_relative "support/test_names"
require_relative "support/test_process"
require_relative "support/test_run"
require_relative "../test/support/compiled_cache"
require_relative "../test/support/kafka_broker"

# Test files of each part, one process for each inner list. Parts whose tests mostly wait come first.
TEST_FILES = {
  "streams" => -> { each_file("test/integration/streams/**/*_test.rb") },
  "integration" => lambda {
    each_file("test/integration/**/*_test.rb").reject { |(file)| file.start_with?("test/integration/streams/") }
  },
  # The applications in examples/ keep their files in one place, so their tests follow one another.
  "examples" => -> { [Dir["test/examples/**/*_test.rb"]] },
  "boundary" => -> { [Dir["test/boundary/**/*_test.rb"]] },
  "unit" => -> { [Dir["test/*_test.rb", "test/unit/**/*_test.rb"]] },
  # The boundary once more, with a collection at every allocation.
  "stress" => -> { each_file("test/boundary/**/*_test.rb") }
}.freeze
TEST_PARTS = ["cargo", *TEST_FILES.keys].freeze
# Only run when asked for: all cases of a test that otherwise takes some, for up to an hour.
CROSSINGS = "crossings"
# The same for the models of jobs and streams; CHATON_MODEL_SECONDS says for how long.
MODELS = "models"
MODEL_S = 600
# The test program of a crate that has several modules of tests.
INTEGRATION = "integration"
# Only in `bin/matrix rails`.
RAILS = "rails"
TEST_NAMES = TestNames.new([*TEST_PARTS, CROSSINGS, MODELS, RAILS])
# One broker serves all of these.
KAFKA_PARTS = %w[cargo streams].freeze
# These compute all the time and give way to tests that watch the clock.
NICE = { "stress" => 5, "cargo" => 10 }.freeze
# These observe how jobs and requests share the processors, so nothing else runs beside them.
ALONE = %w[jobs/side_by_side web/accept web/client_gone web/flood web/together]
  .map { |name| "integration/#{name}" }.freeze
# Of a program of Rust, whose tests mostly wait for stores and brokers.
RUST_TEST_THREADS = Etc.nprocessors * 2
# The jemalloc package holds no code of ours, and building it takes a minute.
CARGO_PACKAGES = ["--locked", "--workspace", "--exclude", "chaton-jemalloc"].freeze

def each_file(glob) = Dir[glob].zip

# @param name [String] of a part or of a file
# @return [Array<TestProcess>]
def ruby_tests(name)
  file = TEST_NAMES.file(name)
  return test_processes("some #{TEST_NAMES.part_of(name)}", [[file]], TEST_NAMES.part_of(name)) if file
  return test_processes(name, [["test/integration/web/crossings_test.rb"]], name) if name == CROSSINGS
  return rails_tests if name == RAILS
  test_processes(name, TEST_FILES.fetch(name).call, name)
end

def test_processes(title, files_of_each, part)
  CompiledCache.start
  env = CompiledCache.variables
  env["CROSSINGS"] = "all" if part == CROSSINGS
  env["CHATON_GC_STRESS"] = "1" if part == "stress"
  env["CHATON_TEST_KAFKA"] = KafkaBroker.shared.address if KAFKA_PARTS.include?(part)
  files_of_each.map do |files|
    label = files.one? ? files.first.delete_prefix("test/").delete_suffix("_test.rb") : "#{files.size} files"
    command = ["ruby", "-w", "-Ilib", "-Itest", "-e", "ARGV.shift.to_i.times { require File.expand_path(ARGV.shift) }",
               files.size.to_s, *files.sort, "--verbose"]
    TestProcess.new(title, label, command, env: env, nice: NICE.fetch(part, 0), alone: ALONE.include?(label),
                                           time_limit_s: part == CROSSINGS ? 3600 : 900)
  end
end

# Cargo compiles while other tests wait; then each of its test programs is a process of its own.
def rust_tests
  compile = [Toolchain.cargo, "test", *CARGO_PACKAGES, "--no-run", "--quiet",
             "--message-format=json-render-diagnostics"]
  documents = [Toolchain.cargo, "test", *CARGO_PACKAGES, "--quiet", "--doc"]
  [TestProcess.new("cargo", "compile", compile, env: Toolchain.env, nice: NICE["cargo"], time_limit_s: 1800) do |output|
    rust_programs(output) << TestProcess.new("cargo", "examples in documents", documents, env: Toolchain.env)
  end]
end

# @return [Array<TestProcess>, nil] nil for a part in Ruby
def rust_part(name) = { "cargo" => method(:rust_tests), MODELS => method(:model_tests) }[name]&.call

# @return [Array<TestProcess>]
def rails_tests
  own = RailsTests::FILES.flat_map { |glob| Dir[glob] }.zip
  [*test_processes(RAILS, own, RAILS), *RailsTests.new(ENV.fetch("CHATON_RAILS", nil)).theirs]
end

# The tests of the models, which run at the same time.
def model_tests
  seconds = ENV["CHATON_MODEL_SECONDS"] ||= MODEL_S.to_s
  compile = [Toolchain.cargo, "test", "--locked", "--package", "chaton-jobs", "--package", "chaton-streams", "--lib",
             "--test", INTEGRATION, "--no-run", "--quiet", "--message-format=json-render-diagnostics"]
  [TestProcess.new(MODELS, "compile", compile, env: Toolchain.env, time_limit_s: 1800) do |output|
    test_programs(output).filter_map do |program, crate, name|
      label = File.basename(crate)
      filter = { "jobs unit" => "engine::tests::model",
                 "streams integration" => "engine_model::the_engine" }["#{label} #{name}"]
      next unless filter

      # The search for the fewest steps that fail may follow.
      TestProcess.new(MODELS, label, [program, filter, "--nocapture"], dir: crate, time_limit_s: seconds.to_i + 600)
    end
  end]
end

# @param output [String] what cargo printed for machines
# @return [Array<TestProcess>]
def rust_programs(output)
  env = { "CHATON_TEST_KAFKA" => KafkaBroker.shared.address, "RUST_TEST_THREADS" => RUST_TEST_THREADS.to_s }
  test_programs(output).flat_map do |program, crate, name|
    commands = name == INTEGRATION ? modules(program) : { name => [program] }
    commands.map do |label, command|
      TestProcess.new("cargo", "#{File.basename(crate)} #{label}", command, env: env, dir: crate)
    end
  end
end

# What a module's tests do to their process, signals, limits, environment, meets no other module's: each has a process,
# although all of a crate's are compiled into one program, which takes a third of the time that a program each takes.
# @param program [String]
# @return [Hash{String => Array<String>}] command by name of the module
def modules(program)
  lines = IO.popen([program, "--list", "--format", "terse"], &:readlines)
  tests = lines.filter_map { |line| line[/\A(.+): test$/, 1] }
  tests.group_by { |test| test[/\A\w+/] }.transform_values { |names| [program, "--exact", *names] }
end

# @param output [String] what cargo printed for machines
# @return [Array<Array(String, String, String)>] program, directory of the crate, name
def test_programs(output)
  messages = output.lines.grep(/\A\{/).map { |line| JSON.parse(line) }
  messages.select { |message| message["executable"] && message.dig("profile", "test") }.map do |message|
    name = message["target"]["kind"].include?("lib") ? "unit" : message["target"]["name"]
    [message["executable"], File.dirname(message["manifest_path"]), name]
  end
end

desc "Run the tests: all parts, or test[unit,integration/web/accept]"
task :test do |_, args|
  names = args.extras.empty? ? TEST_PARTS : args.extras
  problem = TEST_NAMES.problem(names)
  abort problem if problem

  # A reader behind a pipe sees each line at once, too.
  $stdout.sync = true
  processes = names.flat_map { |name| rust_part(name) || ruby_tests(name) }
  mkdir_p "tmp", verbose: false
  # CHATON_TEST_SECONDS limits the time in which tests start; bin/matrix sets it. CHATON_TEST_AGAIN is how many failed
  # processes are run once more; .ci/run sets it.
  seconds = Float(ENV["CHATON_TEST_SECONDS"].to_s, exception: false) || Float::INFINITY
  # On average a process of tests uses less than a third of a processor; with more, those that compute slow others down.
  run = TestRun.new(slots: Etc.nprocessors * 3, times_path: "tmp/test_times.json",
                    result_path: "tmp/test_result.json", seconds: seconds,
                    again_max: Integer(ENV.fetch("CHATON_TEST_AGAIN", "0")))
  exit 1 unless run.call(processes)
end
