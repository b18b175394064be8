# frozen_string_literal: true

require "json"
require "open3"
require_relative "chaton"

module Bench
  # Chaton from this checkout with some settings and a control socket.
  #
  # The first boot reads the application's heap, and the reading sets up the second boot. Users have a reading after
  # their first deployment, so each server is booted, used and stopped once before it is measured.
  class ChatonWith < Chaton
    # Requests to the first boot.
    FIRST_REQUESTS = 200
    # The bench's own environment must not affect allocation and collection.
    CLEAN = { "LD_PRELOAD" => nil, "MALLOC_CONF" => nil, "MALLOC_ARENA_MAX" => nil }.freeze

    # @param settings [String] lines of a configuration file
    # @param note [String, nil] added to the label
    # @param preparation [String, nil] a Ruby file that is loaded before Chaton
    def initialize(settings: "", note: nil, preparation: nil, **rest)
      super(**rest)
      @preparation = preparation
      @settings = settings
      @note = note
      @booted_before = false
    end

    def label = [super, @note].compact.join(" ")

    # @return [String] the whole configuration
    def configuration
      [@threads&.then { |range| "threads #{range.dump}" }, "workers #{@workers}", @settings].compact.join("\n")
    end

    # @return [String] the command and the configuration
    def command_line(rackup) = "#{super} # chaton.rb: #{configuration.gsub("\n", "; ")}"

    # @return [self]
    def start(rackup, probe: "/", **rest)
      @folder = Dir.mktmpdir("chaton-bench-conf")
      @config = File.join(@folder, "chaton.rb")
      File.write(@config, configuration)
      boot_once(rackup, probe, rest) unless @booted_before
      super
    end

    def stop
      super
      FileUtils.rm_rf(@folder) if @folder
    end

    # @return [Hash{String => Object}] `chaton status --json`
    # @raise [RuntimeError] when the command failed
    def status = JSON.parse(cli("status", "--json"))

    # @param name [String] of a statistic of each worker
    # @return [Integer] the sum over all workers
    # @raise [RuntimeError] when this version has no such statistic
    def gauge(name)
      found = figures(status, name)
      raise "#{label}: chaton status --json has no #{name}" if found.empty?
      found.sum
    end

    # Runs a `chaton` command on this server.
    #
    # @return [String] its output
    # @raise [RuntimeError] when it failed
    def cli(*words)
      output, status = Open3.capture2e(CLEAN, "ruby", *program, *words, "--control-socket", socket)
      raise "#{label}: chaton #{words.join(" ")} failed:\n#{output}#{log}" unless status.success?
      output
    end

    private

    # The first boot, which is not measured.
    def boot_once(rackup, probe, rest)
      @booted_before = true
      folder = @folder
      @folder = nil
      Chaton.instance_method(:start).bind_call(self, rackup, probe:, **rest)
      Net::HTTP.start("127.0.0.1", port) { |http| FIRST_REQUESTS.times { http.get(probe) } }
      stop
      @folder = folder
    end

    def figures(found, name)
      case found
      when Hash then found.key?(name) ? [found[name]] : found.values.flat_map { |inner| figures(inner, name) }
      when Array then found.flat_map { |inner| figures(inner, name) }
      else []
      end
    end

    def program = ["-I#{ROOT}/lib", *("-r#{@preparation}" if @preparation), "#{ROOT}/exe/chaton"]
    def socket = File.join(@folder || "FOLDER", "control.sock")

    def command(rackup, port)
      ["env", *CLEAN.keys.flat_map { |name| ["-u", name] }, "ruby", *program, rackup, "-C", @config || "chaton.rb",
       "--control-socket", socket, "-b", "tcp://127.0.0.1:#{port}", "-e", "production"]
    end
  end
end
