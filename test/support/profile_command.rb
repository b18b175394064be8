# frozen_string_literal: true

require "open3"
require "json"
require_relative "server"

# Runs `chaton profile …` in a server's directory.
module ProfileCommand
  LEAK = File.expand_path("../../examples/leak/config.ru", __dir__)
  # The line of the leak.
  LEAK_LINE = File.readlines(LEAK).index { |line| line.include?("@visits[@visits.size] =") } + 1

  private

  # @param server [Server]
  # @param input [Hash] further keywords of Open3
  # @return [Array(String, String, Integer)] output, errors, exit status
  def chaton_profile(server, *argv, **input)
    out, err, status = Open3.capture3({ "RACK_ENV" => "production" }, RbConfig.ruby, "-I", Server::LIB, Server::EXE,
                                      "profile", *argv, chdir: server.dir, **input)
    [out, err, status.exitstatus]
  end

  # Asserts success.
  #
  # @return [String] output
  def profile!(server, *argv, **input)
    out, err, status = chaton_profile(server, *argv, **input)
    assert_equal [0, ""], [status, err], "chaton profile #{argv.join(" ")}"
    out
  end

  # @return [Array<Hash>] of the workers' tracers
  def profile_status(server) = JSON.parse(profile!(server, "status", "--json"))
end
