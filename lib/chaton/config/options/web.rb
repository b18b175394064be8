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
      # A short wait; none is allowed.
      PAUSE = Types::Number.new(0.0..10_000.0, unit: "milliseconds")

      # Paths of requests, of which the last sign may stand for any rest.
      STREAMED_PATHS = Types::Words.new("paths such as /import or /uploads/*", pattern: %r{\A/[^*\s]*\*?\z})

      # The queue of requests.
      QUEUE = [
        Option.keyword(:queue, :limit, Types::Number.new(1..1_000_000), 1024,
                       "Requests that wait for a thread, at most; the next one is answered 503 with Retry-After."),
        Option.keyword(:queue, :bytes, Types::Bytes.new(65_536..(1 << 40)), 64 << 20,
                       "Bytes in memory of the requests that wait, at most; the next one is answered 503.",
                       name: :queue_bytes_max),
        Option.keyword(:queue, :age, Types::Number.new(0.01..3600.0, unit: "seconds"), 15.0,
                       "A request that has waited this long is answered 503 instead of being started; a worker whose " \
                       "queue is that old is not ready.", name: :queue_age_s),
        Option.keyword(:queue, :retry_after, Types::Number.new(0..86_400), 1,
                       "Retry-After in seconds of every 503 that the server sends.", name: :retry_after_s)
      ].freeze

      # Limits on what a client sends and gets. Those of a head are Puma's: 112 KiB in all and 12 KiB of the URI (its
      # limits for the path, the query and one value are smaller). Puma does not count headers, each of which costs a
      # String and a place in the env; Apache takes 100, Node.js 2,000.
      LIMITS = [
        Option.in(:web, :header_bytes_max, :limits, Types::Bytes.new(1024..(1 << 24)), 112 << 10,
                  "Bytes of a request's head, and of a chunked body's trailers; above it 431."),
        Option.in(:web, :header_count_max, :limits, Types::Number.new(1..10_000), 1000,
                  "Header lines of a request, and trailer lines; above it 431."),
        Option.in(:web, :uri_bytes_max, :limits, Types::Bytes.new(64..(1 << 24)), 12 << 10,
                  "Bytes of the request's URI; above it 414."),
        Option.in(:web, :body_bytes_max, :limits, Types::Bytes.new(0..(1 << 50)), 1 << 30,
                  "Bytes of a request's body; above it 413.", puma: %i[http_content_length_limit]),
        Option.in(:web, :body_memory_bytes_max, :limits, Types::Bytes.new(0..(1 << 32)), 256 << 10,
                  "Bytes of a request's body kept in memory; a larger one goes to an unlinked temporary file."),
        Option.in(:web, :body_rate_min, :limits, Types::Number.new(1..(1 << 30), off: true), 240,
                  "Bytes a second of a request's body, on average over each body_timeout_s; a slower one is answered " \
                  "408. Off: one byte in that time is enough."),
        Option.in(:web, :stream_body_bytes_max, :limits, Types::Bytes.new(4096..(1 << 30)), 256 << 10,
                  "Bytes of a streamed request's body (stream_bodies) that wait in memory for the application; above " \
                  "it the client waits."),
        Option.in(:web, :connections_max, :limits, Types::Number.new(1..1_000_000), 10_000,
                  "Connections open at once in one process, or three quarters of the limit of open files if that is " \
                  "less. For a further one, those that have waited longest for a request are closed."),
        Option.in(:web, :tls_handshakes_max, :limits, Types::Number.new(1..1_000_000), 1000,
                  "TLS handshakes under way at once in one process; the next one closes the oldest, so that slow " \
                  "ones cannot keep others out."),
        Option.in(:web, :http2_streams_max, :limits, Types::Number.new(1..65_535), 100,
                  "Requests of one HTTP/2 connection under way at once; its client waits with the next one."),
        Option.in(:web, :http2_resets_max, :limits, Types::Number.new(1..1_000_000), 400,
                  "Requests an HTTP/2 client may give up on a connection beyond those it lets be answered; then the " \
                  "connection is closed (rapid reset). Time forgives an eighth of them each second."),
        Option.in(:web, :requests_per_connection_max, :limits, Types::Number.new(1..(1 << 40), off: true), 0,
                  "Requests answered on one connection before it is closed."),
        Option.in(:web, :reply_memory_bytes_max, :limits, Types::Bytes.new(4096..(1 << 32)), 1 << 20,
                  "Bytes of a streamed answer kept in memory for a slow client; more goes to an unlinked temporary " \
                  "file."),
        Option.in(:web, :reply_spool_bytes_max, :limits, Types::Bytes.new(0..(1 << 50)), 1 << 30,
                  "Bytes of a streamed answer kept in that file; above it the application waits for the client.")
      ].freeze

      # Time limits of clients and of the application.
      TIMEOUTS = [
        Option.in(:web, :request_timeout_s, :timeouts, TIME_OR_OFF, 60.0,
                  "Time from the complete request to the first byte of its answer; then the client is answered 503 " \
                  "and the request is logged with its backtrace, while its thread goes on.",
                  development: 0.0, also: %i[timeout], flags: %w[--timeout], placeholder: "S"),
        Option.in(:web, :abort_on_close_s, :timeouts, SHORT_TIME_OR_OFF, 0.01,
                  "A request that has waited this long for a thread is answered 503 instead of run if its client has " \
                  "closed the connection, or its side of it, meanwhile."),
        Option.in(:web, :tls_handshake_timeout_s, :timeouts, TIME, 10.0,
                  "Time from the accepted connection to the end of its TLS handshake."),
        Option.in(:web, :header_timeout_s, :timeouts, TIME, 30.0,
                  "Time from the first byte of a request's head to its last.", puma: %i[first_data_timeout]),
        Option.in(:web, :body_timeout_s, :timeouts, TIME, 30.0,
                  "A request's body that is not complete after this time, and then each time it has passed again, " \
                  "must have brought body_rate_min bytes a second meanwhile; else it is answered 408."),
        Option.in(:web, :write_timeout_s, :timeouts, TIME, 30.0,
                  "Time that a client may let an answer wait. Each time it has passed, the client must have taken " \
                  "240 bytes a second meanwhile; else it is cut off."),
        Option.in(:web, :idle_timeout_s, :timeouts, TIME, 60.0, "Time of a kept-alive connection without a request.",
                  puma: %i[persistent_timeout]),
        Option.in(:web, :drain_idle_s, :timeouts, Types::Number.new(0.0..3600.0, unit: "seconds"), 1.0,
                  "While its process stops, a connection is closed when its last answer is this old; its client may " \
                  "have sent the next request meanwhile.")
      ].freeze

      # How connections are taken and logged.
      CONNECTIONS = [
        Option.in(:web, :access_log, :connections,
                  Types::OneOf.new(:off, :common, :json, words: { true => :common, false => :off, nil => :off }), :off,
                  "One line per request on standard output: off, common or json.",
                  flags: %w[--access-log], placeholder: "FORM", puma: %i[log_requests], outside: true),
        Option.in(:web, :http2, :connections, Types::Switch.new, true,
                  "Speak HTTP/2 with clients that choose it in their TLS handshake, or begin with it (h2c)."),
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
                  "With https_only: Strict-Transport-Security of answers over HTTPS that have none."),
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
                  "Tell clients in Server-Timing how many ms a request waited (queue) and ran until its answer began " \
                  "(app); browsers show it beside the request. Anybody can read it."),
        Option.in(:web, :early_hints, :connections, Types::Switch.new, false,
                  "Offer rack.early_hints, with which an application sends 103 before its answer.",
                  flags: %w[--early-hints], puma: %i[early_hints]),
        Option.in(:web, :accept_grace_ms, :connections, PAUSE, 1.0,
                  "A worker that is busier than another one leaves a new connection to it, and checks again after " \
                  "this pause.", outside: true),
        Option.in(:web, :accept_defer_ms, :connections, PAUSE, 50.0,
                  "For how long it leaves a connection to others that accept none. In each such period a worker with " \
                  "more work and more connections than another one closes a connection with the answer, so that its " \
                  "client connects anew; 0: never.", outside: true)
      ].freeze

      # Certificates and sessions.
      TLS = [
        Option.in(:web, :tls_reload_s, :connections, TIME, 10.0,
                  "With a new TLS connection the files of certificates are looked at if the last look is this old. " \
                  "Changed ones are loaded for later connections, if certificate and key belong together and are " \
                  "valid; else a line in the log says why not, once an hour. SIGHUP reads them at once."),
        Option.in(:web, :tls_ticket_s, :connections, Types::Number.new(60.0..604_800.0, unit: "seconds"), 43_200.0,
                  "Time after which the key of session tickets, with which clients continue a TLS session at any " \
                  "worker, is replaced; its tickets are accepted as long again.")
      ].freeze

      # Limits of the requests with which a worker warms itself up.
      WARM_UP = [
        Option.in(:web, :warm_up_timeout_s, :timeouts, TIME, 20.0,
                  "Time for all `warm_up` blocks of a process; then it takes requests without the rest. It is part " \
                  "of boot_timeout_s."),
        Option.in(:web, :warm_up_requests_max, :limits, Types::Number.new(1..1_000_000), 1000,
                  "Requests that `warm_up` blocks make in one process, at most.")
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
        Option.in(:web, :static_fresh_s, :files, Types::Number.new(0.0..3600.0, unit: "seconds"), 1.0,
                  "For so long a static file is answered as it was found; then it is compared with the disk.",
                  development: 0.0),
        Option.in(:web, :sendfile_roots, :files, Types::Words.new("directories"), nil,
                  "Directories whose files are sent when the application names them in X-Sendfile (an absolute path) " \
                  "or X-Accel-Redirect (a path below one of them). Without any, these headers are sent on to a proxy.")
      ].freeze

      # Compression of the application's answers.
      COMPRESSION = [
        Option.in(:web, :compress, :compression, Types::Switch.new, false,
                  "Compress answers of the application with gzip for clients that accept it: text, JSON, XML, " \
                  "JavaScript, SVG and the like, unless they are encoded already or say no-transform. `chaton init` " \
                  "sets it. An answer with the header x-chaton-compress: off is sent as it is."),
        Option.in(:web, :compress_bytes_min, :compression, Types::Bytes.new(0..(1 << 30)), 1024,
                  "A smaller answer of known length is sent as it is."),
        Option.in(:web, :compress_level, :compression, Types::Number.new(1..9), 5,
                  "1 is fastest, 9 smallest. It is 1 while more answers are compressed than there are processors."),
        Option.in(:web, :compress_jitter_bytes, :compression, Types::Number.new(0..1024, off: true), 32,
                  "Bytes by which a compressed answer is made longer at most, by a number that depends on its " \
                  "content: its length must not tell what it holds (BREACH).")
      ].freeze

      WEB = [*QUEUE, *LIMITS, *TIMEOUTS, *CONNECTIONS, *TLS, *FILES, *COMPRESSION, *WARM_UP].freeze
    end
  end
end
