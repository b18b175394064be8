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
    end
  end
end
