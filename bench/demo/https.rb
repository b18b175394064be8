# frozen_string_literal: true

require "open3"
require "socket"
require "uri"
require_relative "../../lib/chaton/web/development_certificate"
require_relative "../support/machine"

module Bench
  # The HTTPS address of the demonstration, with the user's certificate for development, and requests to it with curl,
  # which checks the certificate.
  class Https
    PORT = 9393
    REQUESTS = 2_000

    # What the certificate reports is printed.
    class Printer
      # @param fields [Hash{Symbol => Object}]
      def info(message, **fields) = puts("#{message}: #{fields.values.join(", ")}")
    end

    def initialize
      @port = [PORT, 0].map { |port| free(port) }.compact.first
      ::Chaton::Web::DevelopmentCertificate.new(log: Printer.new).prepare
    end

    # @return [String] as the server takes it
    def bind
      cert, key = ::Chaton::Web::DevelopmentCertificate.pair
      "https://127.0.0.1:#{@port}?#{URI.encode_www_form(cert:, key:)}"
    end

    def url(path) = "https://localhost:#{@port}#{path}"

    # Asks for a page on one connection, again and again.
    #
    # @return [String] what became of it
    def visit(path)
      return "curl is not installed; try #{url(path)} in a browser" unless Machine.installed?("curl")
      output, errors = curl(path)
      answers = output.lines.map(&:split)
      fine = answers.select { |status, *| status == "200" }
      return "curl failed at #{url(path)}: #{errors.lines.last}" if fine.empty?
      version = fine.map { |answer| answer[1] }.uniq.join(" and ")
      connections = answers.sum { |*, connects| connects.to_i }
      "#{url(path)}: #{fine.size} of #{REQUESTS} requests of curl answered over HTTP/#{version}; " \
        "connections: #{connections}"
    end

    private

    def curl(path)
      format = "%{response_code} %{http_version} %{num_connects}\n"
      authority = File.join(::Chaton::Web::DevelopmentCertificate.directory, "authority.pem")
      Open3.capture3("curl", "-4", "--silent", "--show-error", "--noproxy", "*", "--max-time", "30",
                     "--cacert", authority, "--output", File::NULL, "--write-out", format,
                     "#{url(path)}?[1-#{REQUESTS}]")
    end

    def free(port)
      TCPServer.open("127.0.0.1", port) { |socket| socket.addr[1] }
    rescue Errno::EADDRINUSE
      nil
    end
  end
end
