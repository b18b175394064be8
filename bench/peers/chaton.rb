# frozen_string_literal: true

require_relative "server"

module Bench
  # Chaton from this checkout.
  class Chaton < Server
    # @param config [String, nil] path of a configuration file; nil: none is read
    # @param binds [Array<String>] further addresses
    def initialize(config: nil, binds: [], **rest)
      super(**rest)
      @config = config
      @binds = binds
    end

    def name = "chaton"
    def chaton? = true

    private

    def command(rackup, port)
      ["ruby", "-I#{ROOT}/lib", "#{ROOT}/exe/chaton", rackup, "-C", @config || "-", "--control-socket", "none",
       "-b", address(port, "https"), *@binds.flat_map { |bind| ["-b", bind] }, "-e", "production",
       *(@config ? [] : ["-w", @workers.to_s]), *(@threads ? ["-t", @threads] : [])]
    end
  end
end
