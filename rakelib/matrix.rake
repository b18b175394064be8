# frozen_string_literal: true

require "json"
require "time"
require_relative "support/checkout_copy"
require_relative "support/lane_results"
require_relative "support/test_names"

# What bin/matrix does in Ruby.
namespace :matrix do
  results = LaneResults.new("tmp/matrix", "docs/matrix")

  # The lane first, then the parts or files.
  task :check do |_, args|
    lane, *names = args.extras
    lanes = ENV.fetch("MATRIX_LANES").split
    problem = TestNames.unknown("lane", lane, lanes) unless lanes.include?(lane)
    problem ||= TestNames.new(TEST_PARTS).problem(names)
    abort "matrix: #{problem}" if problem
  end

  # The names of the files come from standard input, each followed by a zero byte.
  task :copy, [:to] do |_, args|
    CheckoutCopy.new(Dir.pwd, args[:to]).call($stdin.read.split("\0"))
  end

  task :record, [:lane, :versions, :result, :commit] do |_, args|
    next unless File.exist?(args[:result])
    result = JSON.parse(File.read(args[:result]))
    at = { "commit" => args[:commit], "date" => Time.now.utc.strftime("%F") }
    parts = (result["parts"].keys & [*TEST_PARTS, RAILS]) - result["cut"]
    results.record(args[:lane], versions: JSON.parse(File.read(args[:versions])), result: result, parts: parts, at: at)
  end

  task :table do
    results.keep
    File.write("README.md", results.render(File.read("README.md")))
    puts results.table
  end
end
