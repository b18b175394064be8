# frozen_string_literal: true

require "erb"
require "yaml"
require_relative "nearest"
require_relative "options"
require_relative "problem"

module Chaton
  module Config
    # Reads what a config/sidekiq.yml says for what is set nowhere else: ERB, sections for environments, keys with
    # and without a leading colon. A key that means nothing here is named in a note; nothing is passed over silently.
    class SidekiqFile
      # Key => option, and how the values of its line are made.
      KEYS = {
        "concurrency" => [:jobs_threads, ->(value) { [1, value] }],
        "queues" => [:queues, ->(value) { value.is_a?(Hash) ? [value] : Array(value) }],
        "timeout" => [:jobs_shutdown_timeout_s, ->(value) { [value] }],
        "max_retries" => [:retries_max, ->(value) { [value] }],
        "labels" => [:labels, ->(value) { Array(value) }],
        "require" => [:load, ->(value) { [value] }]
      }.freeze
      # Keys without an option => why they need none.
      ACCEPTED = { "environment" => "use -e", "verbose" => "use log_level", "strict" => nil, "tag" => "use tag",
                   "pidfile" => "use pidfile", "logfile" => "use stdout_redirect" }.freeze
      # Sections of these names belong to environments, whatever is in them.
      ENVIRONMENTS = %w[development test staging production].freeze
      # Variables that name Sidekiq's Redis: one names the name of another.
      PROVIDER, URL = %w[REDIS_PROVIDER REDIS_URL].freeze

      # @param sources [Sources] gets the values
      # @param root [String] the application's directory
      # @param env [ENV, Hash{String=>String}]
      def initialize(sources, root:, environment:, env:)
        @sources = sources
        @environment = environment
        @env = env
        @asked = sources.set?(:sidekiq_file)
        name = @asked ? sources[:sidekiq_file] : Options[:sidekiq_file].default
        @path = name && File.expand_path(name, root)
        @origin = Origin.new(name)
      end

      # @return [String, nil] the file, where there is one
      def read
        return unless @path
        return missing unless File.file?(@path)

        settings = parse
        take(settings) if settings
        take_redis
        @path
      end

      private

      def missing
        @sources.problem(@origin, "there is no such file; mend jobs { sidekiq_file … }") if @asked
        nil
      end

      def parse
        text = ERB.new(File.read(@path), trim_mode: "-").tap { |erb| erb.filename = @path }.result
        found = YAML.safe_load(text, permitted_classes: [Symbol], aliases: true) || {}
        return plain(found) if found.is_a?(Hash)

        problem("holds no keys but #{found.class}")
      rescue ScriptError, StandardError => e
        problem("cannot be read: #{e.message.lines.first.to_s.strip} (#{e.class})")
      end

      # Keys of the environment's own section go before the others.
      def plain(found)
        keys = found.transform_keys { |key| key.to_s.delete_prefix(":") }
        sections = keys.select { |key, value| value.is_a?(Hash) && section?(key, value) }
        own = sections.fetch(@environment, {}).transform_keys { |key| key.to_s.delete_prefix(":") }
        keys.reject { |key, _| sections.key?(key) }.merge(own)
      end

      def section?(key, value)
        [*ENVIRONMENTS, @environment].include?(key) || value.keys.any? { |one| KEYS.key?(one.to_s.delete_prefix(":")) }
      end

      def take(settings)
        settings.each { |key, value| set(key, value, strict: settings["strict"]) }
      end

      def set(key, value, strict:)
        name, values = KEYS[key]
        return unknown(key) unless name
        return if value.nil? || @sources.set?(name)

        values = values.call(value)
        values = names(values) if key == "queues" && strict
        @sources.assign(:sidekiq, Options[name], values, @origin, label: key)
      rescue TypeError, ArgumentError
        problem("#{key} has a value that makes no sense: #{value.inspect}")
      end

      # `strict: true` lets the order count, not the weights.
      def names(queues) = queues.map { |queue| queue.is_a?(Array) ? queue.first : queue }

      def unknown(key)
        return if ACCEPTED.key?(key) && ACCEPTED[key].nil?

        why = ACCEPTED[key] || Nearest.to(key, KEYS.keys)&.then { |nearest| "did you mean #{nearest}?" }
        @sources.note(@origin, "#{key} is not read#{": #{why}" if why}")
      end

      def take_redis
        return if @sources.set?(:store)

        name = [@env[PROVIDER].to_s, URL].find { |variable| !variable.empty? }
        url = @env[name].to_s
        if url.empty?
          return @sources.note(@origin, "no #{name} in the environment and no jobs { store … }: jobs live in " \
                                      "#{Options[:store].default}, where Sidekiq does not see them")
        end

        @sources.assign(:sidekiq, Options[:store], [url], Origin.new("environment variable #{name}"))
      end

      def problem(message)
        @sources.problem(@origin, message)
        nil
      end
    end
  end
end
