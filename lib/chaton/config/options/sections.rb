# frozen_string_literal: true

require_relative "../bind"
require_relative "../control_socket"
require_relative "../option"
require_relative "../otel_environment"
require_relative "../store_address"
require_relative "../types/memory"
require_relative "../types/text"
require_relative "../types/traces"

module Chaton
  module Config
    module Options
      # Event streams, and the log of their messages.
      LIVE = [
        Option.in(:live, :live_store, :live, Types::MessageStore.new, nil,
                  "Where the messages of Chaton.broadcast are: a file, which all processes of a machine share and " \
                  "the first message or event stream makes, or a Redis for several machines. TLS files and " \
                  "timeouts of Redis are those of `jobs`, and so is the user of the same Redis.",
                  key: :store, default_text: "the Redis of jobs, or sqlite://storage/chaton_ENVIRONMENT_live.db"),
        Option.in(:live, :history_bytes, :live, Types::Bytes.new((1 << 20)..(1 << 40)), 64 << 20,
                  "Bytes of messages that are kept.", engine: :live),
        Option.seconds(:live, :history_s, :live, 1.0..2_592_000.0, 3600.0, "Time for which messages are kept.",
                       engine: :live),
        Option.seconds(:live, :ping_s, :live, 0.1..3600.0, 20.0,
                       "Time without a message after which a client is sent a comment, so that it and all proxies " \
                       "know that the connection is alive.", engine: :live),
        Option.in(:live, :slow_client, :live, Types::OneOf.new(:gap, :close), :gap,
                  "What happens to a client that reads so slowly that a thousand messages or a megabyte wait for it: " \
                  "gap: it catches up from what is kept, and gets the event `gap` if it has missed messages; close: " \
                  "its connection is closed.", engine: :live),
        Option.in(:live, :client_streams_max, :live, Types::Number.new(1..1_000_000), 1000,
                  "Open event streams that one client address, or one network of IPv6 (/64), may have in a worker; " \
                  "further ones are answered 429. Addresses of private networks and of this machine are not counted.",
                  engine: :live)
      ].freeze

      # What a memory ceiling may be.
      CEILING_BYTES = (1 << 20)..(1 << 50)

      # How memory is allocated and collected.
      COLLECTION = [
        Option.in(:memory, :allocator, :memory, Types::OneOf.new(:auto, :jemalloc, :mimalloc, :system), :auto,
                  "The C allocator below Ruby. auto: jemalloc, the system's or else Chaton's own; without any, the C " \
                  "library's, tuned. The process executes itself again to load it. CHATON_ALLOCATOR_PATH names other " \
                  "directories to search.", flags: %w[--allocator], placeholder: "NAME"),
        Option.in(:memory, :eden, :memory, Types::EdenSize.new, :auto,
                  "How much may be allocated between two collections; auto: begins with 4 MiB, or with what the last " \
                  "start found, and finds the size by what collecting costs, between 4 and 256 MiB.",
                  flags: %w[--eden], placeholder: "SIZE"),
        Option.in(:memory, :longlife, :memory, Types::LonglifeGrowth.new, :settle,
                  "By what share the old objects may grow before a full collection; settle is 1.0, twice as many as " \
                  "after boot. off: Ruby's own limits."),
        Option.in(:memory, :compact, :memory, Types::Switch.new, Process.respond_to?(:warmup),
                  "Compact the heap before workers are forked, so that they share more of it. Off before Ruby 3.3, " \
                  "whose native extensions were written when few servers moved objects: one that keeps the address " \
                  "of an object crashes. When a worker crashes in its first minute, the code is loaded again without " \
                  "compaction.", default_text: "on with Ruby 3.3 and later, else off"),
        Option.in(:memory, :collect, :memory, Types::OneOf.new(:between, :off), :between,
                  "When garbage is collected: between requests and jobs, or (off) when Ruby decides.", engine: :memory),
        Option.in(:memory, :summary, :memory, Types::Switch.new, false, "Log a line for each collection.",
                  engine: :memory)
      ].freeze

      # How much memory may be used.
      CEILINGS = [
        Option.in(:memory, :limit, :memory, Types::BytesOr.new(CEILING_BYTES, :auto, :off), :auto,
                  "Memory of one worker (including its part of shared memory) above which it is replaced: a new one " \
                  "is started, then the old one finishes its work and exits.",
                  flags: %w[--memory-limit], placeholder: "BYTES"),
        Option.in(:memory, :limit_hard, :memory, Types::BytesOr.new(CEILING_BYTES, none: true), nil,
                  "Memory of one worker above which it is stopped at once.", default_text: "1.5 times limit"),
        Option.in(:memory, :limit_tree, :memory, Types::BytesOr.new(CEILING_BYTES, :auto, :off), :auto,
                  "Memory of all processes together above which the largest worker is replaced. auto: 0.9 of the " \
                  "container's limit, if there is one.")
      ].freeze

      # Where allocations come from.
      PROFILING = [
        Option.in(:memory, :profile, :memory, Types::Switch.new, false,
                  "Profile allocations from the start; `chaton profile` switches it in a running server.",
                  also: %i[trace])
      ].freeze

      MEMORY = [*COLLECTION, *CEILINGS, *PROFILING].freeze

      # The admin endpoint.
      ADMIN = [
        Option.in(:admin, :admin_bind, :admin, Types::BindAddress.new(port: 9394, tls: false), nil,
                  "Address of the admin endpoint: /live, /ready, /metrics and the dashboard; may be repeated. The " \
                  "file of a Unix socket has mode 0600 unless ?mode= or ?umask= says otherwise.",
                  key: :bind, default_text: "none"),
        Option.in(:admin, :admin_hosts, :admin, Types::Words.new("names of hosts"), [].freeze,
                  "Names that a request may have in its Host header, besides localhost, the host of `bind` and any " \
                  "IP address. Others are answered 403, because a web page may have its own name resolve to this " \
                  "machine.", key: :hosts, engine: :admin),
        Option.in(:admin, :admin_token, :admin, Types::Secret.new("16 or more characters without spaces",
                                                                  pattern: /\A[!-~]{16,}\z/), nil,
                  "Opens /metrics to other machines, and the dashboard's data and actions to programs, in the header " \
                  "Authorization: Bearer TOKEN. Without it only this machine, through an address of the loopback or " \
                  "a Unix socket of mode 0600, may read the metrics.",
                  key: :token, env: %w[CHATON_ADMIN_TOKEN], engine: :admin),
        Option.in(:admin, :admin_lag_max, :admin, Types::Number.new(1..(1 << 62), off: true), 0,
                  "A worker in which one topic of a group has more records than this that are not done is not ready " \
                  "for the role streams.", key: :lag_max),
        Option.in(:admin, :admin_statsd, :admin, Types::StatsdAddress.new, nil,
                  "Sends the metrics to a StatsD server, also without a `bind`.", key: :statsd, default_text: "none"),
        Option.in(:admin, :admin_statsd_tags, :admin, Types::Switch.new, false,
                  "Sends labels as tags (`|#class:HardJob`), as Datadog, Telegraf and others read them; otherwise as " \
                  "parts of the name.", key: :statsd_tags)
      ].freeze

      # What is recorded.
      SPANS = [
        Option.in(:traces, :traces_sample, :traces, Types::Number.new(0.0..1.0), 1.0,
                  "Which share of the traces that begin here is recorded. A trace that began elsewhere is recorded " \
                  "just when it is recorded there.",
                  key: :sample, env: %w[OTEL_TRACES_SAMPLER OTEL_TRACES_SAMPLER_ARG],
                  read: OtelEnvironment.method(:sample), engine: :traces),
        Option.in(:traces, :traces_follow_parent, :traces, Types::Switch.new, true,
                  "Off: the share is taken of traces that began elsewhere too, as the samplers of OpenTelemetry " \
                  "without parentbased_ do.",
                  key: :follow_parent, env: %w[OTEL_TRACES_SAMPLER], read: OtelEnvironment.method(:follow_parent),
                  engine: :traces),
        Option.in(:traces, :traces_service_name, :traces, Types::Word.new, nil,
                  "The name under which the application's spans are found.",
                  default_text: "the tag", key: :service_name, env: %w[OTEL_SERVICE_NAME]),
        Option.in(:traces, :traces_attributes, :traces, Types::NamedValues.new, nil,
                  "Attributes of the process, such as \"service.namespace\" => \"shop\".",
                  key: :attributes, env: %w[OTEL_RESOURCE_ATTRIBUTES]),
        Option.in(:traces, :traces_query, :traces, Types::Switch.new, false,
                  "Whether spans of requests have their query strings (url.query), which may hold secrets.",
                  key: :query, engine: :traces)
      ].freeze

      # How it is sent.
      COLLECTOR = [
        Option.in(:traces, :traces_endpoint, :traces, Types::TracesEndpoint.new, "http://127.0.0.1:4318/v1/traces",
                  "The collector, which takes OTLP over HTTP with protobuf. An https:// collector is checked against " \
                  "the system's certificates.",
                  key: :endpoint, env: %w[OTEL_EXPORTER_OTLP_TRACES_ENDPOINT OTEL_EXPORTER_OTLP_ENDPOINT],
                  read: OtelEnvironment.method(:endpoint), engine: :traces),
        Option.in(:traces, :traces_headers, :traces, Types::SecretHeaders.new, nil,
                  "Headers of each request to the collector, such as \"authorization\" => \"Bearer …\"; never shown.",
                  key: :headers, env: %w[OTEL_EXPORTER_OTLP_TRACES_HEADERS OTEL_EXPORTER_OTLP_HEADERS])
      ].freeze

      TRACES = [*SPANS, *COLLECTOR].freeze

      # Log, files and the control socket.
      OUTPUT = [
        Option.in(:top, :log_format, :output, Types::OneOf.new(:human, :json), :human,
                  "Format of the server's own log, which goes to standard output.",
                  also: %i[log], flags: %w[--log], placeholder: "human|json"),
        Option.in(:top, :log_level, :output, Types::OneOf.new(:debug, :info, :warn, :error), :info,
                  "Lowest level that is logged: debug, info, warn or error.",
                  flags: %w[--log-level], placeholder: "LEVEL"),
        Option.in(:top, :stdout_redirect, :output, Types::OutputFiles.new, nil,
                  "Files for standard output and standard error; true as a third value appends. SIGHUP reopens them."),
        Option.in(:top, :pidfile, :output, Types::Path.new(none: true), nil,
                  "File with the pid of the main process.", flags: %w[--pidfile], placeholder: "FILE"),
        Option.in(:top, :control_socket, :output, Types::Path.new(none: true), ControlSocket.method(:default),
                  "Unix socket through which `chaton status`, `quiet`, `stop` and `restart` reach the server; only " \
                  "its owner may connect. A server without the role web has tmp/chaton-jobs.sock or " \
                  "tmp/chaton-streams.sock. In releases/NAME beside a directory `shared`, as Capistrano makes them, " \
                  "it is shared/tmp/chaton.sock.",
                  default_text: "tmp/chaton.sock", flags: %w[--control-socket], placeholder: "FILE")
      ].freeze
    end
  end
end
