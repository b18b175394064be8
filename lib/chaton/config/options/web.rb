# frozen_string_literal: true

require_relative "../option"
require_relative "../types/text"

module Chaton
  module Config
    module Options
      # How the definitions below are shortened: the same few types again and again.
      module Short
        # A time limit.
        TIME = Types::Number.new(0.1..86_400.0, unit: "seconds")
        # A time limit that may be off.
        TIME_OR_OFF = Types::Number.new(0.1..86_400.0, unit: "seconds", off: true)
        # A short wait; none is allowed.
        PAUSE = Types::Number.new(0.0..10_000.0, unit: "milliseconds")

        # @return [Option] inside `web { }`
        def self.web(name, group, type, default, says, **rest)
          Option.new(name: name, group: group, scope: :web, type: type, default: default, says: says, **rest)
        end

        # @return [Option] a keyword of `queue` inside `web { }`
        def self.queue(name, key, type, default, says)
          Option.new(name: name, key: key, group: :queue, scope: :queue, type: type, default: default, says: says)
        end
      end
      private_constant :Short

      # What waits for a thread.
      QUEUE = [
        Short.queue(:queue_limit, :limit, Types::Number.new(1..1_000_000), 1024,
                    "Requests that wait for a thread; the next one is answered 503 with Retry-After."),
        Short.queue(:queue_bytes_max, :bytes, Types::Bytes.new(65_536..(1 << 40)), 64 << 20,
                    "Bytes in memory of the requests that wait; above it the next one is answered 503."),
        Short.queue(:queue_age_s, :age, Types::Number.new(0.01..3600.0, unit: "seconds"), 5.0,
                    "A request that waited this long is answered 503 instead of being started; a worker whose queue " \
                    "is that old is not ready."),
        Short.queue(:retry_after_s, :retry_after, Types::Number.new(0..86_400), 1,
                    "Retry-After of every 503 the server gives, in seconds.")
      ].freeze

      # What a client can make grow.
      LIMITS = [
        Short.web(:header_bytes_max, :limits, Types::Bytes.new(1024..(1 << 24)), 32_768,
                  "Bytes of a request's head, and of a chunked body's trailers; above it 431."),
        Short.web(:header_count_max, :limits, Types::Number.new(1..10_000), 100,
                  "Header lines of a request, and trailer lines; above it 431."),
        Short.web(:uri_bytes_max, :limits, Types::Bytes.new(64..(1 << 24)), 8192,
                  "Bytes of the request's URI; above it 414."),
        Short.web(:body_bytes_max, :limits, Types::Bytes.new(0..(1 << 50)), 1 << 30,
                  "Bytes of a request's body; above it 413.", puma: %i[http_content_length_limit]),
        Short.web(:body_memory_bytes_max, :limits, Types::Bytes.new(0..(1 << 32)), 256 << 10,
                  "Bytes of a request's body kept in memory; a larger one goes to an unlinked temporary file."),
        Short.web(:connections_max, :limits, Types::Number.new(1..1_000_000), 10_000,
                  "Connections open at once in one process."),
        Short.web(:requests_per_connection_max, :limits, Types::Number.new(1..(1 << 40), off: true), 0,
                  "Requests answered on one connection before it is closed."),
        Short.web(:reply_memory_bytes_max, :limits, Types::Bytes.new(4096..(1 << 32)), 1 << 20,
                  "Bytes of a streamed answer kept in memory for a slow client; what comes above goes to an unlinked " \
                  "temporary file."),
        Short.web(:reply_spool_bytes_max, :limits, Types::Bytes.new(0..(1 << 50)), 1 << 30,
                  "Bytes of a streamed answer kept in that file; above it the application waits for the client.")
      ].freeze

      # What a client, or the application, can make wait.
      TIMEOUTS = [
        Short.web(:request_timeout_s, :timeouts, Short::TIME_OR_OFF, 30.0,
                  "From the whole request to the first byte of its answer: the client is answered 503 and the " \
                  "request is logged with its backtrace; its thread goes on.",
                  development: 0.0, also: %i[timeout], flags: %w[--timeout], placeholder: "S"),
        Short.web(:header_timeout_s, :timeouts, Short::TIME, 30.0,
                  "From the first byte of a request's head to its last.", puma: %i[first_data_timeout]),
        Short.web(:body_timeout_s, :timeouts, Short::TIME, 30.0, "Without a byte while a request's body arrives."),
        Short.web(:write_timeout_s, :timeouts, Short::TIME, 30.0,
                  "Without a byte taken by the client while an answer is sent."),
        Short.web(:idle_timeout_s, :timeouts, Short::TIME, 60.0, "A kept-alive connection without a request.",
                  puma: %i[persistent_timeout]),
        Short.web(:drain_idle_s, :timeouts, Types::Number.new(0.0..3600.0, unit: "seconds"), 5.0,
                  "What an idle connection is left once its process is told to stop.")
      ].freeze

      # How connections are taken and logged.
      CONNECTIONS = [
        Short.web(:access_log, :connections,
                  Types::OneOf.new(:off, :common, :json, words: { true => :common, false => :off, nil => :off }), :off,
                  "One line a request on standard output: off, common or json.",
                  flags: %w[--access-log], placeholder: "FORM", puma: %i[log_requests], outside: true),
        Short.web(:early_hints, :connections, Types::Switch.new, false,
                  "Offer rack.early_hints, by which an application sends 103 before its answer.",
                  puma: %i[early_hints]),
        Short.web(:accept_grace_ms, :connections, Short::PAUSE, 1.0,
                  "A worker that is busier than another leaves a new connection to it, and looks again after this " \
                  "pause.", outside: true),
        Short.web(:accept_defer_ms, :connections, Short::PAUSE, 50.0, "The longest it leaves a connection to others.",
                  outside: true)
      ].freeze

      # All of them.
      WEB = [*QUEUE, *LIMITS, *TIMEOUTS, *CONNECTIONS].freeze
    end
  end
end
