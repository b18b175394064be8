# frozen_string_literal: true

require "time"
require_relative "../../config/types"
require_relative "../../native"
require_relative "../../streams/native_methods"
require_relative "../servers"
require_relative "../subcommand"
require_relative "../table"
require_relative "admin"

module Chaton
  class CLI
    module Streams
      # Types of arguments.
      module Values
        # The position in a topic to begin at.
        class StartPosition < Config::Types::Base
          def initialize
            super("earliest, latest, an offset, -N for the N newest, or a time like 2026-01-31T12:00:00Z")
          end

          # @return [String, Integer, Array(String, Integer)] as a reader takes it; -N is unchanged
          def cast(value)
            return value if %w[earliest latest].include?(value)
            return Integer(value, 10) if value.match?(/\A-?\d+\z/)

            ["time", (Time.iso8601(value).to_r * 1000).to_i]
          rescue ArgumentError
            mismatch(value)
          end
        end

        # NAME=VALUE, several times.
        class Headers < Config::Types::Base
          # Headers of a record.
          LIMIT = 100

          def initialize = super("NAME=VALUE, at most #{LIMIT} times")

          def list? = true

          def arguments = 1..LIMIT

          # @return [Hash{String=>String, Array<String>}] as a record takes them
          def cast(*values)
            pairs = values.flatten.map do |text|
              name, value = text.split("=", 2)
              value && !name.empty? ? [name, value] : mismatch(text)
            end
            mismatch("#{pairs.size} of them") if pairs.size > LIMIT
            pairs.group_by(&:first).transform_values { |same| same.size == 1 ? same[0][1] : same.map(&:last) }
          end
        end
      end

      # The base of subcommands: finds the log by the configuration.
      class Command < Subcommand
        # @return [Config::Option] one of a subcommand
        def self.define_option(name, type, placeholder, says, **rest)
          Config::Option.new(name: name, group: :streams, type: type, placeholder: placeholder, says: says,
                             flags: ["--#{name}"], **rest)
        end
        private_class_method :define_option

        PARTITION = Config::Types::Number.new(0..100_000)

        # Options of subcommands.
        OWN = {
          group: define_option(:group, Config::Types::Word.new("a group"), "NAME", "Only this one.",
                               default_text: "all"),
          partition: define_option(:partition, PARTITION, "N", "Only this partition.", default_text: "any"),
          place: define_option(:place, Values::StartPosition.new, "WHERE",
                               "Begin there: earliest, latest, an offset, a time (2026-01-31T12:00:00Z), or with -N " \
                               "the N newest.", flags: %w[--from], default_text: "the 10 newest"),
          seek_to: define_option(:seek_to, Values::StartPosition.new, "WHERE",
                                 "Continue there: earliest, latest, an offset, a time (2026-01-31T12:00:00Z), or " \
                                 "with -N at the N newest.", flags: %w[--to], default_text: "none"),
          count: define_option(:count, Config::Types::Number.new(1..1_000_000_000), "N", "Number of records, at most.",
                               default_text: "all"),
          key: define_option(:key, Config::Types::Word.new("a key"), "KEY",
                             "The record's key, which selects the partition.", default_text: "none"),
          header: define_option(:header, Values::Headers.new, "NAME=VALUE", "A header; may be given again.",
                                default_text: "none"),
          to: define_option(:to, Config::Types::BrokerUrl.new, "URL", "The log to copy into.", default_text: "none"),
          from: define_option(:from, Config::Types::BrokerUrl.new, "URL", "The log to copy from.",
                              default_text: "as configured"),
          as: define_option(:as, Config::Types::Word.new("a topic"), "NAME", "The topic's name there.",
                            default_text: "the same"),
          replay_to: define_option(:replay_to, Config::Types::Word.new("a topic"), "TOPIC",
                                   "Send them to this topic.", flags: %w[--to], default_text: "where each came from")
        }.freeze

        # The options that lead to the log.
        COMMON = %i[config_file environment broker].map { |name| Config::Options[name] }.freeze

        private

        def client = @client ||= open_log(make: makes_log?)

        # @return [Boolean] whether the command makes a log on this machine where there is none; one that reads does not
        def makes_log? = false

        def admin = @admin ||= Admin.new(client)

        def plan = @plan ||= load_streams

        # Without streams in the configuration, the default log is used.
        def load_streams
          options = { environment: Servers.settings(given)["environment"], **given }.compact
          plan = Config.load(options, problems: @arguments.problems)
          return plan if plan.streams

          place = { environment: plan.environment, root: plan.root }
          Config.load({ **options, broker: Config::BrokerAddress.default(place) })
        end

        # @param broker [String, nil] nil: the configured one
        def open_log(broker = nil, make: false)
          broker = broker ? Config::BrokerAddress.under(broker, plan.root) : plan.streams.log.fetch(:broker)
          file = Config::BrokerAddress.file(broker)
          require_log(broker, file) if file && !make
          # Only Kafka asks for a user.
          user = file ? { username: nil, password: nil } : {}
          Native::StreamsClient.new(plan.streams.log_document(broker: broker, **user))
        rescue ArgumentError => e
          raise ConfigError, e.message
        end

        def require_log(broker, file)
          return if File.exist?(file)

          raise StreamUnavailable,
                "there is no log at #{broker} yet; a server with streams or `chaton streams produce` " \
                "makes it. Was it started in this directory?"
        end

        # @return [Hash{Symbol=>Float}] of {RecordWriter}
        def timeouts = { room_s: plan.streams.produce_timeout_s, delivery_s: plan.streams.delivery_timeout_s }

        # @param topic [Hash{String=>Object}] as {Admin#topic!} gives it
        # @return [Array<Hash{String=>Object}>] its partitions, or the one of --partition
        def partitions(topic)
          number = value(:partition)
          return topic["partitions"] unless number

          found = topic["partitions"].select { |partition| partition["number"] == number }
          return found unless found.empty?

          raise UnknownTopic, "#{topic["name"]} has no partition #{number}; it has 0 to " \
                              "#{topic["partitions"].size - 1}"
        end
      end
    end
  end
end
