# frozen_string_literal: true

require_relative "../bind"
require_relative "../option"
require_relative "../types/text"

module Chaton
  module Config
    module Options
      # The admin endpoint.
      ADMIN = [
        Option.in(:admin, :admin_bind, :admin, Types::BindAddress.new(port: 9394, tls: false), nil,
                  "Address of the admin endpoint: /live, /ready, /metrics and the dashboard; may be repeated. The " \
                  "file of a Unix socket has mode 0600 unless ?mode= or ?umask= says otherwise.",
                  also: %i[bind], default_text: "none"),
        Option.in(:admin, :admin_hosts, :admin, Types::Words.new("names of hosts"), [].freeze,
                  "Names that a request may have in its Host header, besides localhost, the host of `bind` and any " \
                  "IP address. Others are answered 403, because a web page may have its own name resolve to this " \
                  "machine.",
                  also: %i[hosts]),
        Option.in(:admin, :admin_token, :admin, Types::Secret.new("16 or more characters without spaces",
                                                                  pattern: /\A[!-~]{16,}\z/), nil,
                  "Opens /metrics to other machines, and the dashboard's data and actions to programs, in the header " \
                  "Authorization: Bearer TOKEN. Without it only this machine, through an address of the loopback or " \
                  "a Unix socket of mode 0600, may read the metrics.",
                  also: %i[token], env: %w[CHATON_ADMIN_TOKEN]),
        Option.in(:admin, :admin_connections_max, :admin, Types::Number.new(1..10_000), 64,
                  "Requests answered at once, besides /live and /ready, which need no place; further ones wait. A " \
                  "connection without a complete request takes no place. Wrong tokens wait for each other on half " \
                  "of the places; while that is so, further wrong ones are answered 429.", also: %i[connections_max]),
        Option.seconds(:admin, :admin_timeout_s, :admin, 0.1..600.0, 5.0,
                       "How long a client may take to send the whole head of a request, or to read the response, and " \
                       "how long a request waits for a place.",
                       also: %i[timeout_s timeout]),
        Option.seconds(:admin, :admin_broker_statistics_s, :admin, 1.0..3600.0, 10.0,
                       "How often the metrics of Kafka's brokers are brought up to date, by clients of workers that " \
                       "read streams.", also: %i[broker_statistics_s]),
        Option.in(:admin, :admin_lag_max, :admin, Types::Number.new(1..(1 << 62), off: true), 0,
                  "A worker in which one topic of a group has more records than this that are not done is not ready " \
                  "for the role streams.", also: %i[lag_max]),
        Option.in(:admin, :admin_statsd, :admin, Types::StatsdAddress.new, nil,
                  "Sends the metrics to a StatsD server, also without a `bind`.",
                  also: %i[statsd], default_text: "none"),
        Option.seconds(:admin, :admin_statsd_interval_s, :admin, 0.1..3600.0, 10.0,
                       "How often the metrics are sent.", also: %i[statsd_interval_s]),
        Option.in(:admin, :admin_statsd_tags, :admin, Types::Switch.new, false,
                  "Sends labels as tags (`|#class:HardJob`), as Datadog, Telegraf and others read them; otherwise as " \
                  "parts of the name.", also: %i[statsd_tags]),
        Option.seconds(:admin, :admin_link_s, :admin, 1.0..3600.0, 60.0,
                       "How long the link of `chaton dashboard` is valid, which can be used once.",
                       also: %i[link_s]),
        Option.seconds(:admin, :admin_session_s, :admin, 60.0..2_592_000.0, 43_200.0,
                       "How long a browser that has opened the link may use the dashboard.",
                       also: %i[session_s])
      ].freeze
    end
  end
end
