# frozen_string_literal: true

require "open3"

# Parses OpenMetrics text strictly: what breaks the rules that Prometheus relies on raises. Where Debian's
# python3-prometheus-client is installed, its parser reads the text too.
class OpenMetrics
  class Malformed < StandardError; end

  HEAD = /\A# (HELP|TYPE|UNIT) ([a-zA-Z_:][\w:]*) (.*)\z/
  SAMPLE = /\A([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)\z/
  LABEL = /\G([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|\z)/
  # The endings that samples of a type may have.
  SUFFIXES = { "counter" => ["_total"], "gauge" => [""], "histogram" => %w[_bucket _count _sum] }.freeze
  PYTHON = <<~PYTHON
    import sys
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
    print(sum(len(family.samples) for family in parse(sys.stdin.read())))
  PYTHON

  # @return [Hash{String=>String}] the type of each metric
  attr_reader :types
  # @return [Hash{Array(String, Hash)=>Float}] by name and labels
  attr_reader :samples

  def initialize(text)
    @types = {}
    @samples = {}
    *lines, last = text.lines(chomp: true)
    raise Malformed, "no end" unless last == "# EOF" && text.end_with?("\n")

    lines.each { |line| line.start_with?("#") ? head(line) : sample(line) }
    check_histograms
    check_with_python(text)
  end

  # @return [Float, nil]
  def value(name, **labels) = @samples[[name, labels.transform_keys(&:to_s)]]

  # @return [Array<Hash{String=>String}>] the labels of a metric's samples
  def labels(name) = @samples.keys.select { |other, _| other == name }.map(&:last)

  private

  def head(line)
    kind, name, text = line.match(HEAD)&.captures
    raise Malformed, line unless kind

    @family = name
    @types[name] = text if kind == "TYPE"
  end

  def sample(line)
    name, labels, number = line.match(SAMPLE)&.captures
    suffixes = SUFFIXES.fetch(@types.fetch(@family))
    raise Malformed, line unless name && suffixes.any? { |suffix| name == @family + suffix }

    key = [name, pairs(labels.to_s, line)]
    raise Malformed, "twice: #{line}" if @samples.key?(key)

    @samples[key] = Float(number == "+Inf" ? "Infinity" : number)
  end

  def pairs(text, line)
    found = {}
    scanned = 0
    text.scan(LABEL) do |label, value|
      scanned = Regexp.last_match.end(0)
      raise Malformed, "label twice: #{line}" if found.key?(label)

      found[label] = value.gsub(/\\(.)/) { Regexp.last_match(1) == "n" ? "\n" : Regexp.last_match(1) }
    end
    raise Malformed, line unless scanned == text.size

    found
  end

  # Buckets grow, and the last one is the count.
  def check_histograms
    buckets = @samples.select { |(name, _), _| name.end_with?("_bucket") }
    buckets.group_by { |(name, labels), _| [name, labels.except("le")] }.each do |(name, labels), found|
      by_bound = found.sort_by { |(_, with), _| with["le"] == "+Inf" ? Float::INFINITY : Float(with["le"]) }
      counts = by_bound.map(&:last)
      raise Malformed, "#{name} #{labels} falls: #{counts}" unless counts == counts.sort
      raise Malformed, "#{name} #{labels} has no +Inf" unless by_bound.last.first.last["le"] == "+Inf"
      count = @samples[[name.sub("_bucket", "_count"), labels]]
      raise Malformed, "#{name} #{labels}: #{count} is not the count" unless counts.last == count
    end
  end

  def check_with_python(text)
    out, err, = Open3.capture3("/usr/bin/python3", "-c", PYTHON, stdin_data: text)
    return if err.include?("ModuleNotFoundError")
    raise Malformed, err unless out.to_i == @samples.size
  rescue Errno::ENOENT
    nil # There is no Python.
  end
end
