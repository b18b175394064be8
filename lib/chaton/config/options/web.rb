# frozen_string_literal: true

require_relative "../option"
require_relative "../types/text"

module Chaton
  module Config
    module Options
      # A time limit.
      TIME = Types::Number.new(0.1..86_400.0, unit: "seconds")
      # A time limit that may be off.
      TIME_OR_OFF = Types::Number.new(0.1..86_400.0, unit: "seconds", off: true)
      # A short time limit that may be off.
      SHORT_TIME_OR_OFF = Types::Number.new(0.001..3600.0, unit: "seconds", off: true)

      # Paths of requests, of which the last sign may stand for any rest.
      STREAMED_PATHS = Types::Words.new("paths such as /import or /uploads/*", pattern: %r{\A/[^*\s]*\*?\z})

      # The queue of requests.
      QUEUE = [
        Option.keyword(:queue, :limit, Types::Number.new(1..1_000_000), 1024,
                       "Requests that wait for a thread, at most; the next one is answered 503 with Retry-After.",
                       engine: %i[web queue]),
        Option.keyword(:queue, :age, Types::Number.new(0.01..3600.0, unit: "seconds"), 15.0,
                       "A request that has waited this long is answered 503 instead of being started; a worker whose " \
                       "queue is that old is not ready.", name: :queue_age_s, engine: %i[web queue])
      ].freeze

      # Limits on what a client sends and gets. Those of a head are Puma's: 112 KiB in all and 12 KiB of the URI (its
      # limits for the path, the query and one value are smaller).
      LIMITS = [
        Option.in(:web, :header_bytes_max, :limits, Types::Bytes.new(1024..(1 << 24)), 112 << 10,
                  "Bytes of a request's head, and of a chunked body's trailers; above it 431.", engine: %i[web limits]),
        Option.in(:web, :uri_bytes_max, :limits, Types::Bytes.new(64..(1 << 24)), 12 << 10,
                  "Bytes of the request's URI; above it 414.", engine: %i[web limits]),
        Option.in(:web, :body_bytes_max, :limits, Types::Bytes.new(0..(1 << 50)), 1 << 30,
                  "Bytes of a request's body; above it 413.",
                  puma: %i[http_content_length_limit], engine: %i[web limits]),
        Option.in(:web, :connections_max, :limits, Types::Number.new(1..1_000_000), 10_000,
                  "Connections open at once in one process, or three quarters of the limit of open files if that is " \
                  "less. For a further one, those that have waited longest for a request are closed.",
                  engine: %i[web limits]),
        Option.in(:web, :requests_per_connection_max, :limits, Types::Number.new(1..(1 << 40), off: true), 0,
                  "Requests answered on one connection before it is closed.", engine: %i[web limits])
      ].freeze

      # Time limits of clients and of the application.
      TIMEOUTS = [
        Option.in(:web, :request_timeout_s, :timeouts, TIME_OR_OFF, 60.0,
                  "Time from the complete request to the first byte of its response; then the client is answered 503 " \
                  "and the request is logged with its backtrace, while its thread goes on.",
                  development: 0.0, also: %i[timeout], flags: %w[--timeout], placeholder: "S",
                  engine: %i[web timeouts]),
        Option.in(:web, :abort_on_close_s, :timeouts, SHORT_TIME_OR_OFF, 0.01,
                  "A request that has waited this long for a thread is answered 503 instead of run if its client has " \
                  "closed the connection, or its side of it, meanwhile.", engine: %i[web timeouts]),
        Option.in(:web, :header_timeout_s, :timeouts, TIME, 30.0,
                  "Time from the first byte of a request's head to its last.",
                  puma: %i[first_data_timeout], engine: %i[web timeouts]),
        Option.in(:web, :body_timeout_s, :timeouts, TIME, 30.0,
                  "A request's body that is not complete after this time, and then each time it has passed again, " \
                  "must have brought 240 bytes a second meanwhile; else it is answered 408.", engine: %i[web timeouts]),
        Option.in(:web, :write_timeout_s, :timeouts, TIME, 30.0,
                  "Time that a client may let a response wait. Each time it has passed, the client must have taken " \
                  "240 bytes a second meanwhile; else it is cut off.", engine: %i[web timeouts]),
        Option.in(:web, :idle_timeout_s, :timeouts, TIME, 60.0, "Time of a kept-alive connection without a request.",
                  puma: %i[persistent_timeout], engine: %i[web timeouts])
      ].freeze

      # How connections are taken and logged.
      CONNECTIONS = [
        Option.in(:web, :access_log, :connections,
                  Types::OneOf.new(:off, :common, :json, words: { true => :common, false => :off, nil => :off }), :off,
                  "One line per request on standard output: off, common or json.",
                  flags: %w[--access-log], placeholder: "FORM", puma: %i[log_requests], engine: :web),
        Option.in(:web, :http2, :connections, Types::Switch.new, true,
                  "Speak HTTP/2 with clients that choose it in their TLS handshake, or begin with it (h2c).",
                  engine: :web),
        Option.in(:web, :stream_bodies, :connections, STREAMED_PATHS, nil,
                  "Paths whose requests are handed to the application before their body has arrived, so that it " \
                  "reads rack.input while it arrives. Each such request holds a thread as long as its client sends."),
        Option.in(:web, :https_only, :connections, Types::Switch.new, false,
                  "Redirect requests that came over plain HTTP, here or to a proxy in front (X-Forwarded-Proto), to " \
                  "https:// on https_port. Rails does it with force_ssl."),
        Option.in(:web, :https_port, :connections, Types::Number.new(1..65_535), nil,
                  "The port to which https_only redirects, where clients see another one than that of the bind, as " \
                  "with a container whose 8443 is published as 443. The default is the port of the first https bind.",
                  default_text: "that of the first https bind, else 443"),
        Option.in(:web, :https_only_except, :connections, STREAMED_PATHS, nil,
                  "Paths that are answered over plain HTTP in spite of https_only, such as /up for a load balancer."),
        Option.in(:web, :hsts, :connections,
                  Types::Word.new("a value such as max-age=31536000", pattern: /\Amax-age=\d+(; ?[\w-]+)*\z/), nil,
                  "With https_only: Strict-Transport-Security of responses over HTTPS that have none."),
        Option.in(:web, :trusted_proxies, :connections, Types::TrustedProxies.new, nil,
                  "Proxies in front that name the client in forwarded_header: REMOTE_ADDR, the access log and " \
                  "rack.url_scheme are then the client's. The application gets such headers from nobody else, and " \
                  "the traces of others begin anew. private: loopback and private addresses. A Unix socket counts as " \
                  "127.0.0.1. none: nobody is believed. any: the application gets the headers of anybody, as with " \
                  "Puma. Not set: none over TCP with an https:// bind, else any.", default_text: "not set"),
        Option.in(:web, :forwarded_header, :connections, Types::OneOf.new(:x_forwarded_for, :forwarded),
                  :x_forwarded_for,
                  "What trusted_proxies send: X-Forwarded-For with X-Forwarded-Proto, or Forwarded (RFC 7239). The " \
                  "application does not get the other one, which a proxy would pass on as the client has sent it."),
        Option.in(:web, :server_timing, :connections, Types::Switch.new, false,
                  "Tell clients in Server-Timing how many ms a request waited (queue) and ran until its response " \
                  "began (app); browsers show it beside the request. Anybody can read it.", engine: :web),
        Option.in(:web, :early_hints, :connections, Types::Switch.new, false,
                  "Offer rack.early_hints, with which an application sends 103 before its response.",
                  flags: %w[--early-hints], puma: %i[early_hints])
      ].freeze

      # Files that are served without the application.
      FILES = [
        Option.in(:web, :static, :files, Types::StaticRoot.new, :auto,
                  "The directory whose files are answered without the application. auto: public/ of a Rails " \
                  "application that serves it by itself (public_file_server.enabled), see DEPLOYING.md."),
        Option.in(:web, :static_index, :files, Types::Word.new("the name of a file", pattern: %r{\A[^/\0]+\z}), nil,
                  "The file that stands for a directory, such as index.html. Rails' own setting counts for auto."),
        Option.in(:web, :static_cache_control, :files,
                  Types::Word.new("directives of Cache-Control", pattern: /\A[\x20-\x7e]+\z/), nil,
                  "Cache-Control of files whose names have no digest. Those with one are immutable for a year."),
        Option.in(:web, :static_memory_bytes_max, :files, Types::Bytes.new(0..(1 << 40)), 16 << 20,
                  "Bytes of static files that a process keeps in memory."),
        Option.in(:web, :static_file_bytes_max, :files, Types::Bytes.new(0..(1 << 30)), 64 << 10,
                  "A larger static file is sent from the disk and not kept in memory."),
        Option.in(:web, :sendfile_roots, :files, Types::Words.new("directories"), nil,
                  "Directories whose files are sent when the application names them in X-Sendfile (an absolute path) " \
                  "or X-Accel-Redirect (a path below one of them). Without any, these headers are sent on to a proxy.")
      ].freeze

      # Compression of the application's responses.
      COMPRESSION = [
        Option.in(:web, :compress, :compression, Types::Switch.new, false,
                  "Compress responses of the application with gzip for clients that accept it: text, JSON, XML, " \
                  "JavaScript, SVG and the like, unless they are encoded already or say no-transform. `chaton init` " \
                  "sets it. A response with the header x-chaton-compress: off is sent as it is."),
        Option.in(:web, :compress_bytes_min, :compression, Types::Bytes.new(0..(1 << 30)), 1024,
                  "A smaller response of known length is sent as it is."),
        Option.in(:web, :compress_level, :compression, Types::Number.new(1..9), 5,
                  "1 is fastest, 9 smallest. It is 1 while more responses are compressed than there are processors.")
      ].freeze

      WEB = [*QUEUE, *LIMITS, *TIMEOUTS, *CONNECTIONS, *FILES, *COMPRESSION].freeze
    end
  end
end
