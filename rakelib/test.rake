# frozen_string_literal: true

require_relative "../ext/chaton/toolchain"
require_relative "support/part"
require_relative "../test/support/kafka_broker"

# One process runs all files that match.
def minitest_command(*globs)
  files = Dir[*globs].sort
  return if files.empty?
  ["ruby", "-w", "-Ilib", "-Itest", "-e", "ARGV.each { |file| require file }",
   *files.map { |file| File.expand_path(file) }]
end

TEST_PARTS = {
  "cargo" => -> { [Toolchain.cargo, "test", "--locked", "--quiet"] },
  "unit" => -> { minitest_command("test/*_test.rb", "test/unit/**/*_test.rb") },
  "boundary" => -> { minitest_command("test/boundary/**/*_test.rb") },
  "stress" => -> { minitest_command("test/boundary/**/*_test.rb") },
  "integration" => -> { minitest_command("test/integration/**/*_test.rb") },
  "examples" => -> { minitest_command("test/examples/**/*_test.rb") }
}.freeze
TEST_ENV = { "stress" => { "CHATON_GC_STRESS" => "1" } }.freeze
# These share one broker; it is started when the first of them runs.
KAFKA_PARTS = %w[cargo integration].freeze
TEST_TIME_LIMIT_S = { "cargo" => 1200, "integration" => 1200 }.freeze

desc "Run the tests: all parts, or test[unit,examples]"
task :test do |_, args|
  names = args.extras.empty? ? TEST_PARTS.keys : args.extras
  unknown = names - TEST_PARTS.keys
  abort "no such part: #{unknown.join(", ")}; there are #{TEST_PARTS.keys.join(", ")}" unless unknown.empty?

  parts = names.filter_map do |name|
    command = TEST_PARTS.fetch(name).call
    next unless command
    env = TEST_ENV.fetch(name, {})
    env = { "CHATON_TEST_KAFKA" => KafkaBroker.shared.address } if KAFKA_PARTS.include?(name)
    Part.new(name, command, env: env, time_limit_s: TEST_TIME_LIMIT_S.fetch(name, 600)).run
  end
  puts "", parts, ""
  puts "#{parts.sum(&:passed)} passed, #{parts.sum(&:failed)} failed"
  exit 1 if parts.any? { |part| part.failed > 0 } || parts.sum(&:passed).zero?
end
