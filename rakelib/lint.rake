# frozen_string_literal: true

require "json"
require "open3"
require_relative "../ext/chaton/toolchain"
require_relative "support/dependency_check"

# YARD is loaded here only: a machine that just builds has none.
def documented?
  require_relative "support/documented_api"
  missing = DocumentedApi.new("lib/**/*.rb").missing
  puts missing
  missing.empty?
end

def clippy_clean?
  system(Toolchain.env, "bin/support/progress", "clippy", Toolchain.cargo, "clippy", *CARGO_PACKAGES, "--all-targets",
         "--", "-D", "warnings")
end

# Of the packages that are compiled on this system. Those that only tests use are fetched here where none has run yet.
def dependencies_in_order?
  host = IO.popen(["rustc", "-vV"], &:read)[/^host: (.+)$/, 1]
  return unless system(Toolchain.cargo, "fetch", "--quiet", "--locked", "--target", host)

  metadata, problem, status = Open3.capture3(Toolchain.cargo, "metadata", "--locked", "--offline", "--format-version",
                                             "1", "--filter-platform", host)
  return puts(problem) unless status.success?
  check = DependencyCheck.new(JSON.parse(metadata)["packages"])
  puts "vulnerabilities were not looked up: no #{DependencyCheck::ADVISORIES}" unless check.advisories?
  puts check.violations
  check.violations.empty?
end

LINT_CHECKS = {
  "cargo fmt" => -> { system(Toolchain.cargo, "fmt", "--all", "--check") },
  "dependencies" => -> { dependencies_in_order? },
  "clippy" => -> { clippy_clean? },
  "rubocop" => -> { system("rubocop", "--format", "simple", "--no-color") },
  "yard" => -> { documented? },
  "tidy" => -> { system("ruby", "-w", "-Ilib", "-Itest", "test/tidy_test.rb") }
}.freeze

desc "Run every check that executes no code of ours"
task :lint do
  $stdout.sync = true
  failed = LINT_CHECKS.filter_map do |name, check|
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    passed = check.call
    seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
    puts format("%-6s %s (%.1f s)", passed ? "ok" : "FAILED", name, seconds)
    name unless passed
  end
  abort "lint failed: #{failed.join(", ")}" unless failed.empty?
end
