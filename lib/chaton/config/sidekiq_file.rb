# frozen_string_literal: true

require_relative "nearest"
require_relative "options"
require_relative "problem"

module Chaton
  module Config
    # Reads settings from config/sidekiq.yml that no other source sets: with ERB, sections for environments, and keys
    # with and without a leading colon. Each key without a meaning here is named in a note.
    class SidekiqFile
      # Key => option, and how its values are made.
      KEYS = {
        "concurrency" => [:jobs_threads, ->(value) { [1, value] }],
        "queues" => [:queues, ->(value) { value.is_a?(Hash) ? [value] : Array(value) }],
        "timeout" => [:jobs_shutdown_timeout_s, ->(value) { [value] }],
        "max_retries" => [:retries_max, ->(value) { [value] }],
        "labels" => [:labels, ->(value) { Array(value) }],
        "require" => [:load, ->(value) { [value] }]
      }.freeze
      # Keys without an option => what to use instead.
      ACCEPTED = { "environment" => "use -e", "verbose" => "use log_level", "strict" => nil, "tag" => "use tag",
                   "pidfile" => "use pidfile", "logfile" => "use stdout_redirect" }.freeze
      # Sections of these names always belong to environments.
      ENVIRONMENTS = %w[development test staging production].freeze
      # Variables for Sidekiq's Redis; the first one holds the name of another variable.
      PROVIDER, URL = %w[REDIS_PROVIDER REDIS_URL].freeze

      # @param sources [Sources] gets the values
      def initialize(sources, root:, environment:, env:)
        @sources = sources
        @root = root
        @environment = environment
        @env = env
        @named = sources.set?(:sidekiq_file)
        name = @named ? sources[:sidekiq_file] : Options[:sidekiq_file].default
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
        @sources.problem(@origin, "there is no such file; correct jobs { sidekiq_file … }") if @named
        nil
      end

      # The libraries are needed here only, and would take a fifth of the time of a short command.
      def parse
        require "erb"
        require "yaml"
        text = ERB.new(File.read(@path), trim_mode: "-").tap { |erb| erb.filename = @path }.result
        found = YAML.safe_load(text, permitted_classes: [Symbol], aliases: true) || {}
        return plain(found) if found.is_a?(Hash)

        problem("must contain keys, not #{found.class}")
      rescue ScriptError, StandardError => e
        problem("cannot be read: #{e.message.lines.first.to_s.strip} (#{e.class})")
      end

      # Keys of the environment's section override the others.
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
        problem("#{key} has an invalid value: #{value.inspect}")
      end

      # With `strict: true` the order counts, not the weights.
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
          store = StoreAddress.default(environment: @environment)
          return @sources.note(@origin, "no #{name} in the environment and no jobs { store … }: jobs are stored " \
                                        "in #{store}, where Sidekiq does not find them")
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
