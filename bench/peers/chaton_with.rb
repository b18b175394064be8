# frozen_string_literal: true

require "json"
require "open3"
require_relative "chaton"

module Bench
  # Chaton from this checkout with some settings, and a control socket by which it can be asked.
  #
  # What the first boot finds out about the application's heap sets up the second one. Users have that after their
  # first deployment, so each server is booted, asked something, ended, and only then booted to be measured.
  class ChatonWith < Chaton
    # Requests to the boot that is not measured.
    FIRST_REQUESTS = 200
    # Nothing of the bench's own surroundings may decide how memory is allocated and collected.
    CLEAN = { "LD_PRELOAD" => nil, "MALLOC_CONF" => nil, "MALLOC_ARENA_MAX" => nil, "RUBYOPT" => nil }.freeze

    # @param settings [String] lines of a configuration file
    # @param note [String, nil] what is special, for the label
    # @param preparation [String, nil] a Ruby file that is loaded before Chaton
    def initialize(settings: "", note: nil, preparation: nil, **rest)
      super(**rest)
      @preparation = preparation
      @settings = settings
      @note = note
      @known = false
    end

    def label = [super, @note].compact.join(" ")

    # @return [String] the whole configuration
    def configuration
      [@threads&.then { |range| "threads #{range.dump}" }, "workers #{@workers}", @settings].compact.join("\n")
    end

    # @return [String] what was typed, and what the file says
    def command_line(rackup) = "#{super} # chaton.rb: #{configuration.gsub("\n", "; ")}"

    # @return [self]
    def start(rackup, probe: "/", **rest)
      @place = Dir.mktmpdir("chaton-bench-conf")
      @config = File.join(@place, "chaton.rb")
      File.write(@config, configuration)
      become_known(rackup, probe, rest) unless @known
      super
    end

    def stop
      super
      FileUtils.rm_rf(@place) if @place
    end

    # @return [Hash{String => Object}] `chaton status --json`
    # @raise [RuntimeError] when it does not answer
    def status = JSON.parse(cli("status", "--json"))

    # @param name [String] of a figure that each worker has
    # @return [Integer] of all workers together
    # @raise [RuntimeError] when this version has no such figure
    def gauge(name)
      found = figures(status, name)
      raise "#{label}: chaton status --json has no #{name}" if found.empty?
      found.sum
    end

    # Runs a command of the CLI on this server.
    #
    # @return [String] what it wrote
    # @raise [RuntimeError] when it failed
    def cli(*words)
      output, status = Open3.capture2e(CLEAN, "ruby", *program, *words, "--control-socket", socket)
      raise "#{label}: chaton #{words.join(" ")} failed:\n#{output}#{log}" unless status.success?
      output
    end

    private

    # Before super: the boot that is measured is the second one.
    def become_known(rackup, probe, rest)
      @known = true
      place = @place
      @place = nil
      Chaton.instance_method(:start).bind_call(self, rackup, probe:, **rest)
      Net::HTTP.start("127.0.0.1", port) { |http| FIRST_REQUESTS.times { http.get(probe) } }
      stop
      @place = place
    end

    def figures(found, name)
      case found
      when Hash then found.key?(name) ? [found[name]] : found.values.flat_map { |inner| figures(inner, name) }
      when Array then found.flat_map { |inner| figures(inner, name) }
      else []
      end
    end

    def program = ["-I#{ROOT}/lib", *("-r#{@preparation}" if @preparation), "#{ROOT}/exe/chaton"]
    def socket = File.join(@place || "FOLDER", "control.sock")

    def command(rackup, port)
      ["env", *CLEAN.keys.flat_map { |name| ["-u", name] }, "ruby", *program, rackup, "-C", @config || "chaton.rb",
       "--control-socket", socket, "-b", "tcp://127.0.0.1:#{port}", "-e", "production"]
    end
  end
end
