# frozen_string_literal: true

module Chaton
  class CLI
    class Init < Command
      # Takes over what environment variables tell Thruster, which does in front of a server what Chaton does itself.
      # They are read here only: behind Thruster they belong to it.
      module ThrusterVariables
        # Each may have this before its name, and then counts first.
        PREFIX = "THRUSTER_"
        # Variable => the lines of `web { }` that mean the same.
        LINES = {
          "MAX_REQUEST_BODY" => ->(value) { "body_bytes_max #{Integer(value, 10)}" if value.to_i.positive? },
          "HTTP_IDLE_TIMEOUT" => ->(value) { "idle_timeout_s #{Integer(value, 10)}" },
          "HTTP_READ_TIMEOUT" => ->(value) { "header_timeout_s #{Integer(value, 10)}" },
          "HTTP_WRITE_TIMEOUT" => ->(value) { "write_timeout_s #{Integer(value, 10)}" },
          "LOG_REQUESTS" => ->(value) { "access_log #{switch(value) ? ":json" : ":off"}" }
        }.freeze
        # Variable => why it is not taken over.
        REASONS = {
          "TARGET_PORT" => "there is no server behind Chaton",
          "HTTP_PORT" => "write bind \"tcp://0.0.0.0:PORT\"",
          "HTTPS_PORT" => "write a bind with a certificate",
          "TLS_DOMAIN" => "certificates are not fetched; write a bind with a certificate",
          "CACHE_SIZE" => "responses are not cached; static files have static_memory_bytes_max",
          "MAX_CACHE_ITEM_SIZE" => "responses are not cached; static files have static_file_bytes_max",
          "GZIP_COMPRESSION_JITTER" => "compressed responses are always up to 32 bytes longer",
          "X_SENDFILE_ENABLED" => "files that the application names are sent by the kernel anyway",
          "GZIP_COMPRESSION_DISABLE_ON_AUTH" => "an answer with x-chaton-compress: off is not compressed",
          "BAD_GATEWAY_PAGE" => "nothing stands in front that could answer 502",
          "FORWARD_HEADERS" => "with an https bind X-Forwarded-… of clients is hidden; name proxies in front: " \
                               "trusted_proxies \"10.0.0.0/8\""
        }.freeze

        # @return [Array<String>] the section `web` of a config/chaton.rb, which compresses unless they say otherwise
        def self.lines(env = ENV)
          compress = "compress #{switch(set(env, "GZIP_COMPRESSION_ENABLED") || "true")}"
          taken = LINES.filter_map { |name, line| taken(env, name, line) }
          left = REASONS.filter_map { |name, why| "# not taken over: #{name}: #{why}" if set(env, name) }
          return ["web { #{compress} }"] if taken.empty? && left.empty?

          ["web do", "  #{compress}", "  # from the environment variables of Thruster",
           *[*taken, *left].map { |line| "  #{line}" }, "end"]
        end

        def self.taken(env, name, line)
          value = set(env, name)
          value && line.call(value)
        rescue ArgumentError
          "# not taken over: #{name}: #{value.inspect} is no number"
        end

        def self.set(env, name)
          [env["#{PREFIX}#{name}"], env[name]].find { |value| !value.to_s.empty? }
        end

        # As Go reads one.
        def self.switch(value) = %w[1 t true].include?(value.downcase)
        private_class_method :taken, :set
      end
    end
  end
end
