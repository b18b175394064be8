# frozen_string_literal: true

require "json"

module Bench
  # The raw results behind a table. They are from one run, or for each case from the newest run that measured it; any
  # full run goes before a quick run.
  class Results
    RUNS = File.expand_path("../runs", __dir__)
    # Where runs are comparable: `ruby` is a Gem::Version without the patch level, and `os` has the other versions.
    Environment = Struct.new(:ruby, :os) do
      include Comparable

      def <=>(other) = order <=> other.order
      # Debian sid has no number, and is newer than all that have one.
      def order = [ruby, os[/\d+/]&.to_i || Float::INFINITY]
      def to_s = "Ruby #{ruby}, #{os}"
    end
    # A folder of bench/runs and its run.json.
    Source = Struct.new(:folder, :facts) do
      def self.read(folder) = new(folder, JSON.parse(File.read(File.join(folder, "run.json"))))
      # @return [Hash{String => Object}] see Machine.facts
      def machine = facts.fetch("machine")
      def environment = Environment.new(Gem::Version.new(machine.fetch("ruby")[/\d+\.\d+/]), os)
      def yjit? = machine["yjit"] == "yes"
      # @return [String] "Debian 13" for "Debian GNU/Linux 13 (trixie)", "Debian sid" for "Debian GNU/Linux forky/sid"
      def os = machine["system"].to_s.sub(%r{GNU/Linux (\w+/)?}, "").sub(/ \(.*/, "")
      def quick? = facts["quick"] ? true : false
      def name = File.basename(folder)
      # @return [String] relative to the repository
      def path = "bench/runs/#{name}"
    end

    # @param folder [String] bench/runs/DATE-SUITE
    # @return [Results] of one run
    def self.of_run(folder) = new([Source.read(folder)])

    # @param suite [String]
    # @param runs [String] the folder that holds all runs
    # @return [Results] of all runs of a suite
    def self.of_suite(suite, runs: RUNS)
      new((Dir["#{runs}/*-#{suite}"] + Dir["#{runs}/*-#{suite}-[0-9]*"]).map { |folder| Source.read(folder) })
    end

    # @param sources [Array<Source>]
    def initialize(sources)
      order = sources.sort_by { |source| [source.quick? ? 0 : 1, source.facts.fetch("date"), source.name] }
      @sources = order.reverse
    end

    # @param name [String] of a case
    # @return [Hash{String => Object}, nil] its raw results; nil when no run measured it
    def raw(name) = source(name)&.then { |found| JSON.parse(File.read(file(found, name))) }

    # @return [Source, nil] the run that {#raw} is from
    def source(name) = @sources.find { |source| File.exist?(file(source, name)) }

    # @return [Hash{Environment => Results}] the newest Ruby first
    def by_environment
      @sources.group_by(&:environment).sort_by(&:first).reverse.to_h.transform_values { |found| Results.new(found) }
    end

    # @return [Source] the newest run
    def only = @sources.first

    # @param names [Array<String>]
    # @return [Hash{Source => Array<String>}] the cases by the run that {#raw} takes them from
    def used(names) = names.group_by { |name| source(name) }.tap { |found| found.delete(nil) }

    private

    def file(source, name) = File.join(source.folder, "raw", "#{name}.json")
  end
end
