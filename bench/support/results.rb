# frozen_string_literal: true

require "json"

module Bench
  # The raw results behind a table. They are from one run, or for each case from the newest run that measured it; any
  # full run goes before a quick run.
  class Results
    RUNS = File.expand_path("../runs", __dir__)
    # A folder of bench/runs and its run.json.
    Source = Struct.new(:folder, :facts) do
      def quick? = facts["quick"] ? true : false
      def name = File.basename(folder)
      # @return [String] relative to the repository
      def path = "bench/runs/#{name}"
    end

    # @param folder [String] bench/runs/DATE-SUITE
    # @return [Results] of one run
    def self.of_run(folder) = new([folder])

    # @param suite [String]
    # @param runs [String] the folder that holds all runs
    # @return [Results] of all runs of a suite
    def self.of_suite(suite, runs: RUNS) = new(Dir["#{runs}/*-#{suite}"] + Dir["#{runs}/*-#{suite}-[0-9]*"])

    # @param folders [Array<String>]
    def initialize(folders)
      sources = folders.map { |folder| Source.new(folder, JSON.parse(File.read(File.join(folder, "run.json")))) }
      order = sources.sort_by { |source| [source.quick? ? 0 : 1, source.facts.fetch("date"), source.name] }
      @sources = order.reverse
    end

    # @param name [String] of a case
    # @return [Hash{String => Object}, nil] its raw results; nil when no run measured it
    def raw(name) = source(name)&.then { |found| JSON.parse(File.read(file(found, name))) }

    # @return [Source, nil] the run that {#raw} is from
    def source(name) = @sources.find { |source| File.exist?(file(source, name)) }

    # @return [Source] the newest run
    def only = @sources.first

    # @param names [Array<String>]
    # @return [Hash{Source => Array<String>}] the cases by the run that {#raw} takes them from
    def used(names) = names.group_by { |name| source(name) }.tap { |found| found.delete(nil) }

    private

    def file(source, name) = File.join(source.folder, "raw", "#{name}.json")
  end
end
