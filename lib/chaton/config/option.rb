# frozen_string_literal: true

require_relative "types"

module Chaton
  module Config
    # The definition of one setting, which feeds configuration files, command line, `--help`, the plan and
    # docs/CONFIGURATION.md.
    #
    # - name: Symbol, in files and in the plan, with its unit at the end
    # - group: Symbol, the chapter of the manual
    # - scope: :top, :web (inside `web { }`), :queue (a keyword of `queue` inside `web { }`), :jobs (inside `jobs { }`),
    #   :streams (inside `streams { }`), :topic (a keyword of `topic` inside `streams { }`), :memory (inside
    #   `memory { }`), :admin (inside `admin { }`), :traces (inside `traces { }`) or :cli
    # - type: see {Types}; says: one sentence
    # - default: a value, or a Proc over the other settings with default_text in words
    # - development: the default in that environment, if it differs
    # - flags: of the command line; placeholder: for their value, nil if they take none
    # - env: environment variables, of which the first one that is set counts; read: a Proc over env instead
    # - key: the keyword of `queue` or `topic`; also: further names in the same scope; puma: Puma's names, at the top
    # - into: the option that takes the value
    # - outside: of scope :web, but a field of the plan itself, not of its `web`
    Option = Struct.new(:name, :group, :scope, :type, :says, :default, :default_text, :development, :flags,
                        :placeholder, :env, :read, :key, :also, :puma, :into, :outside,
                        keyword_init: true) do
      # @return [Option] inside the block of a scope
      def self.in(scope, name, group, type, default, says, **rest)
        new(name: name, group: group, scope: scope, type: type, default: default, says: says, **rest)
      end

      # @return [Option] a number of seconds inside the block of a scope, also named without the unit
      def self.seconds(scope, name, group, range, default, says, also: [], **rest)
        self.in(scope, name, group, Types::Number.new(range, unit: "seconds"), default, says,
                also: [*also, name.to_s.delete_suffix("_s").to_sym], **rest)
      end

      # @return [Option] a keyword of `queue` or `topic`
      def self.keyword(scope, key, type, default, says, name: :"#{scope}_#{key}", **rest)
        self.in(scope, name, scope, type, default, says, key: key, **rest)
      end

      def initialize(scope: :top, flags: [], env: [], also: [], puma: [], **rest)
        super
        freeze
      end

      # @param settings [Hash{Symbol=>Object}] the options that need no other to be known
      # @return [Object] the value if no source sets it
      def default_in(environment, settings)
        return development if environment == "development" && !development.nil?

        default.respond_to?(:call) ? default.call(settings) : default
      end

      # @return [Symbol] the option its values go to
      def target = into || name

      # @param values [Array] as written
      # @return [Object]
      # @raise [Types::Mismatch]
      def cast(values)
        type.arguments.cover?(values.size) || raise(Types::Mismatch, "takes #{counted}, not #{values.size}")
        type.cast(*values)
      end

      # @param env [ENV, Hash{String=>String}]
      # @return [Array(String, String), nil] the variable that sets it, and its value
      def from(env)
        return read.call(env) if read

        name = env_set(env)
        name && [name, env[name]]
      end

      # @return [Array<String>] arguments of the command that set it
      def arguments(value)
        flag = flags.last
        return [value ? flag : flag.sub("--", "--no-")] if placeholder.nil?

        Array(value).flat_map { |one| [flag, one] }
      end

      # @return [String] the default, in words
      def default_shown
        return default_text if default_text

        shown = default.nil? ? "none" : type.show(default)
        development.nil? ? shown : "#{shown}; in development #{type.show(development)}"
      end

      private

      def env_set(env)
        self.env.find { |variable| !env[variable].to_s.empty? }
      end

      def counted
        range = type.arguments
        return "one value" if range == (1..1)

        "#{range.begin} to #{range.end} values"
      end
    end
  end
end
