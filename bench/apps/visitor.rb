# frozen_string_literal: true

require "cgi"
require "net/http"
require "stringio"
require "uri"

module Bench
  module Apps
    # A browser: keeps cookies and the connection, and remembers every response. Redirections are not followed.
    class Visitor
      # Pages show it in addresses, so it is the same on every port.
      HOST = "app.test"
      BOUNDARY = "----------------chatonbenchboundary"
      # One response: what was asked, what came, and the piece that was asked for.
      Answer = Struct.new(:name, :status, :headers, :body, :range) do
        # @return [String] the token without which Rails refuses forms
        def token = CGI.unescapeHTML(body[/name="csrf-token" content="([^"]+)"/, 1].to_s)
        def location = URI(headers.fetch("location")).request_uri
      end

      attr_reader :answers

      # @param port [Integer]
      def initialize(port)
        @http = Net::HTTP.new("127.0.0.1", port).tap { |http| http.read_timeout = 60 }.start
        @cookies = {}
        @answers = []
      end

      def close = @http.finish

      # @return [Answer]
      def get(path, name: "GET #{path}", **headers) = send_request(Net::HTTP::Get, path, name, nil, headers)
      def head(path, name: "HEAD #{path}", **headers) = send_request(Net::HTTP::Head, path, name, nil, headers)

      # @param fields [Hash{String => String}]
      def form(path, fields, name: "POST #{path}", **headers)
        body = URI.encode_www_form(fields)
        type = { "Content-Type": "application/x-www-form-urlencoded" }
        send_request(Net::HTTP::Post, path, name, body, { **type, **headers })
      end

      # @param fields [Hash{String => String}]
      # @param files [Hash{String => (String, String)}] name and content by field
      def multipart(path, fields, files: {}, name: "POST #{path}", **headers)
        parts = fields.map { |field, value| part(field, value) }
        files.each do |field, (file, content)|
          parts << part(field, content, "; filename=\"#{file}\"\r\nContent-Type: text/plain")
        end
        send_request(Net::HTTP::Post, path, name, "#{parts.join}--#{BOUNDARY}--\r\n",
                     { "Content-Type": "multipart/form-data; boundary=#{BOUNDARY}", **headers })
      end

      # @param verb [String] "POST", "PUT", "DELETE"
      # @param chunks [Boolean] whether the body goes out without its length
      def call(verb, path, body, name: "#{verb} #{path}", chunks: false, **headers)
        send_request(Net::HTTP.const_get(verb.capitalize), path, name, body, headers, chunks:)
      end

      private

      def part(field, content, more = "")
        "--#{BOUNDARY}\r\nContent-Disposition: form-data; name=\"#{field}\"#{more}\r\n\r\n#{content}\r\n"
      end

      def send_request(kind, path, name, body, headers, chunks: false)
        request = kind.new(path)
        # Whatever the library would add is different by its version.
        { "Host" => HOST, "Accept" => "*/*", "Accept-Encoding" => "identity", "User-Agent" => "bench",
          **headers.transform_keys(&:to_s) }.each { |header, value| request[header] = value }
        request["Cookie"] = @cookies.map { |pair| pair.join("=") }.join("; ") if @cookies.any?
        give(request, body, chunks) if body
        response = @http.request(request)
        (response.get_fields("set-cookie") || []).each { |line| @cookies.store(*line[/\A[^;]+/].split("=", 2)) }
        Answer.new(name, response.code.to_i, response.to_hash.transform_values { |values| values.join("\n") },
                   response.body.to_s.b, request["Range"]).tap { |answer| @answers << answer }
      end

      def give(request, body, chunks)
        return request.body = body unless chunks
        request["Transfer-Encoding"] = "chunked"
        request.body_stream = StringIO.new(body)
      end
    end
  end
end
