# frozen_string_literal: true

require_relative "demo"

# The program behind bin/demo, which describes its use.
unknown = ARGV - ["--once"]
abort "bin/demo knows only --once, not #{unknown.join(" ")}" unless unknown.empty?
$stdout.sync = true
Bench::Demo.new(once: ARGV.include?("--once")).run
