# frozen_string_literal: true

require_relative "../ext/chaton/toolchain"
require "stringio"
require_relative "support/part"
require_relative "../test/support/kafka_broker"

# One process runs all files that match.
def minitest_command(*globs)
  files = Dir[*globs].sort
  return if files.empty?
  ["ruby", "-w", "-Ilib", "-Itest", "-e", "ARGV.each { |file| require file }",
   *files.map { |file| File.expand_path(file) }]
end

# What has a part of its own is not run twice.
OTHERS = Dir.children("test/integration").reject { |name| name == "streams" || name.end_with?(".rb") }.join(",")

# Of the same packages as the lints, so that what both need is compiled once.
CARGO_TEST = ["test", "--locked", "--quiet", "--workspace", "--no-fail-fast"].freeze

# In the order in which they run.
TEST_PARTS = {
  "unit" => -> { minitest_command("test/*_test.rb", "test/unit/**/*_test.rb") },
  "boundary" => -> { minitest_command("test/boundary/**/*_test.rb") },
  "stress" => -> { minitest_command("test/boundary/**/*_test.rb") },
  "streams" => -> { minitest_command("test/integration/streams/**/*_test.rb") },
  "integration" => -> { minitest_command("test/integration/*_test.rb", "test/integration/{#{OTHERS}}/**/*_test.rb") },
  "examples" => -> { minitest_command("test/examples/**/*_test.rb") },
  "cargo" => -> { [Toolchain.cargo, *CARGO_TEST] }
}.freeze
TEST_ENV = { "stress" => { "CHATON_GC_STRESS" => "1" }, "cargo" => Toolchain.env }.freeze
# These share one broker; it is started when the first of them runs.
KAFKA_PARTS = %w[cargo streams].freeze
# The first keeps one processor busy, the other mostly waits: they run side by side.
BESIDE = { "stress" => "streams" }.freeze
TEST_TIME_LIMIT_S = { "cargo" => 1200, "integration" => 1200 }.freeze

def part(name)
  command = TEST_PARTS.fetch(name).call or return
  env = TEST_ENV.fetch(name, {})
  env = env.merge("CHATON_TEST_KAFKA" => KafkaBroker.shared.address) if KAFKA_PARTS.include?(name)
  Part.new(name, command, env: env, time_limit_s: TEST_TIME_LIMIT_S.fetch(name, 900))
end

# Compiles the tests of Rust while the others run: those mostly wait, and the compiler gives way to them.
# What it has to say comes when they are run.
def compiling
  pid = Process.spawn(Toolchain.env, "nice", "-n", "19", Toolchain.cargo, *CARGO_TEST, "--no-run",
                      in: File::NULL, out: File::NULL, err: File::NULL, pgroup: true)
  Process.detach(pid)
end

# Waits as long as compiling may take, and ends it else.
def await_compiler(thread, limit_s = TEST_TIME_LIMIT_S.fetch("cargo"))
  Process.kill(:TERM, -thread.pid) unless thread.join(limit_s)
rescue Errno::ESRCH
  # It has just ended by itself.
end

desc "Run the tests: all parts, or test[unit,examples]"
task :test do |_, args|
  names = args.extras.empty? ? TEST_PARTS.keys : args.extras
  unknown = names - TEST_PARTS.keys
  abort "no such part: #{unknown.join(", ")}; there are #{TEST_PARTS.keys.join(", ")}" unless unknown.empty?

  # Whoever reads along, through a pipe too, sees each line when it is there.
  $stdout.sync = true
  made = names.to_h { |name| [name, part(name)] }.compact
  beside = BESIDE.slice(*made.keys).select { |_, name| made.key?(name) }
  compiler = compiling if made.key?("cargo")
  made.each do |name, part|
    next if beside.value?(name)
    await_compiler(compiler) if name == "cargo"
    companion = made[beside[name]]
    thread = Thread.new { companion.run(StringIO.new) } if companion
    part.run
    puts thread.value.output.string if thread
  end
  parts = made.values
  puts "", parts, ""
  puts "#{parts.sum(&:passed)} passed, #{parts.sum(&:failed)} failed"
  exit 1 if parts.any? { |part| part.failed > 0 } || parts.sum(&:passed).zero?
ensure
  await_compiler(compiler, 0) if compiler&.alive?
end
