# frozen_string_literal: true

require_relative "../option"
require_relative "../store_address"
require_relative "../types/memory"
require_relative "../types/text"

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
    end
  end
end
