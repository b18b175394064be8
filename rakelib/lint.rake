# frozen_string_literal: true

require_relative "../ext/chaton/toolchain"

# YARD exits 0 whatever it found: the list of undocumented objects is the answer.
def undocumented
  IO.popen(["yard", "stats", "--list-undoc", "--no-cache", "--no-save", "--no-progress", "lib/**/*.rb"],
           err: [:child, :out], &:read)
end

LINT_CHECKS = {
  "cargo fmt" => -> { system(Toolchain.cargo, "fmt", "--all", "--check") },
  "cargo clippy" => lambda {
    system(Toolchain.env, Toolchain.cargo, "clippy", "--locked", "--quiet", "--workspace", "--all-targets", "--",
           "-D", "warnings")
  },
  "rubocop" => -> { system("rubocop", "--format", "simple", "--no-color") },
  "yard" => lambda {
    found = undocumented
    # A constant may say what it is by its name.
    incomplete = found.match?(/^(?:Modules|Classes|Attributes|Methods):.*\([ ]*[1-9]|^\[warn\]/)
    puts found if incomplete
    !incomplete
  },
  "tidy" => -> { system("ruby", "-w", "-Ilib", "-Itest", "test/tidy_test.rb") }
}.freeze

desc "Run every check that executes no code of ours"
task :lint do
  failed = LINT_CHECKS.filter_map do |name, check|
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    passed = check.call
    seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
    puts format("%-6s %s (%.1f s)", passed ? "ok" : "FAILED", name, seconds)
    name unless passed
  end
  abort "lint failed: #{failed.join(", ")}" unless failed.empty?
end
