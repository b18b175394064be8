# frozen_string_literal: true

require "fileutils"
require "json"
require_relative "machine"
require_relative "results"

module Bench
  # A run of a suite: measures the chosen cases one after another, and writes their raw results and the summary.
  #
  # A suite is a module with `name`, `cases`, `measure(a_case, quick:, progress:)` and `summary(results)`.
  class Run
    # Most runs that may begin within one minute.
    TRIES = 9

    # @param suite [Module]
    # @param only [Array<String>] names of cases; empty for all
    # @param quick [Boolean]
    # @param command [String] as typed, for the record
    def initialize(suite, command:, only: [], quick: false)
      @suite = suite
      @cases = suite.cases
      unknown = only - @cases.map(&:name)
      raise ArgumentError, "no such case: #{unknown.join(", ")} (--list names them)" unless unknown.empty?
      @cases = @cases.select { |a_case| only.include?(a_case.name) } unless only.empty?
      @quick = quick
      @command = command
    end

    # @return [String] the folder that holds the results
    def call
      folder = fresh_folder
      FileUtils.mkdir_p(File.join(folder, "raw"))
      facts = { date: Time.now.strftime("%F %H:%M"), command: @command, quick: @quick,
                machine: Machine.facts(@suite.programs) }
      write(folder, "run.json", facts)
      failed = @cases.to_h { |a_case| [a_case.name, try(folder, a_case)] }.compact
      write(folder, "run.json", { **facts, not_measured: failed }) unless failed.empty?
      File.write(File.join(folder, "summary.md"), @suite.summary(Results.of_run(folder)).to_s)
      folder
    end

    private

    def fresh_folder
      base = File.join(Results::RUNS, "#{Time.now.strftime("%F-%H%M")}-#{@suite.name}")
      [base, *(2..).lazy.map { |n| "#{base}-#{n}" }.first(TRIES)].find { |folder| !File.exist?(folder) }
    end

    # A server that does not start, as one whose application lacks a gem in a lane, does not end the run.
    # @return [String, nil] why the case was not measured
    def try(folder, a_case)
      write(folder, "raw/#{a_case.name}.json", measure(a_case))
      nil
    rescue RuntimeError => e
      e.message.tap { |message| puts "  not measured: #{message}" }
    end

    def measure(a_case)
      puts "", a_case.title
      @suite.measure(a_case, quick: @quick, progress: ->(line) { puts "  #{line}" })
    end

    def write(folder, name, content) = File.write(File.join(folder, name), JSON.pretty_generate(content) << "\n")
  end
end
