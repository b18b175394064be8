# frozen_string_literal: true

require "digest"
require "etc"
require_relative "yjit"

module Bench
  # The machine and the versions of the programs of a run.
  module Machine
    COMMANDS = {
      "kernel" => "uname -sr", "ruby" => "ruby -v", "puma" => "ruby -S puma --version", "wrk" => "wrk -v",
      "sidekiq" => "ruby -S sidekiq --version", "redis" => "redis-server --version", "rust" => "rustc --version",
      "java" => "java -version",
      "rails" => "ruby -rrails/version -e 'print Rails::VERSION::STRING'",
      "commit" => "git rev-parse --short HEAD"
    }.freeze
    ROOT = File.expand_path("../..", __dir__)
    # The programs that every suite reports.
    COMMON = %w[kernel ruby puma sidekiq rust commit].freeze

    module_function

    # @param programs [Array<String>] names in COMMANDS, in addition to the common ones
    # @return [Hash{String => Object}]
    def facts(programs)
      { "cores" => Etc.nprocessors, "processor" => processor, "memory_gib" => memory_gib, "system" => system_name,
        "profile" => profile, "yjit" => YJIT ? "yes" : "no" }
        .merge(COMMANDS.slice(*COMMON, *programs).transform_values { |command| first_line(command) })
        .merge({ "commit" => ENV.fetch("CHATON_BENCH_COMMIT", nil) }.compact)
    end

    # @return [String] cargo's profile of the installed extension, as `rake compile` recorded it
    def profile
      name, digest = File.read(File.join(ROOT, "tmp/extension")).split
      installed = Digest::SHA256.file(File.join(ROOT, "lib/chaton/chaton_native.so")).hexdigest
      digest == installed ? name : "unknown"
    rescue Errno::ENOENT
      "unknown"
    end

    # @return [String] the load of the whole machine
    def load_average = File.read("/proc/loadavg").split.first(3).join(" ")

    # Runs the block beside processes that compute all the time, as other services of a machine may.
    # @param count [Integer]
    def beside_neighbours(count)
      pids = Array.new(count) { spawn("ruby", "-e", "loop {}") }
      yield
    ensure
      pids&.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
    end

    # @return [Boolean] whether a program of that name is on PATH
    def installed?(name) = ENV.fetch("PATH").split(":").any? { |folder| File.executable?(File.join(folder, name)) }

    def processor = File.foreach("/proc/cpuinfo").grep(/model name/).first.to_s.split(": ", 2).last.to_s.strip
    def memory_gib = (File.read("/proc/meminfo")[/MemTotal:\s+(\d+)/, 1].to_i / 1024.0 / 1024).round(1)
    def system_name = File.read("/etc/os-release")[/PRETTY_NAME="(.+)"/, 1]

    def first_line(command)
      line = IO.popen(command, err: [:child, :out], &:read).to_s.lines.first.to_s.strip
      line.match?(/Error\b/) ? "not installed" : line
    rescue Errno::ENOENT
      "not installed"
    end
  end
end
