# frozen_string_literal: true

require_relative "types"

module Chaton
  module Config
    # One thing that can be set: its definition feeds configuration files, command line, `--help`, the plan and
    # docs/CONFIGURATION.md.
    #
    # - name: Symbol, in files and in the plan, the unit at its end
    # - group: Symbol, the chapter of the manual
    # - scope: :top, :web (inside `web { }`), :queue (a keyword of `queue` inside `web { }`), :jobs (inside `jobs { }`),
    #   :streams (inside `streams { }`), :topic (a keyword of `topic` inside `streams { }`), :memory (inside
    #   `memory { }`) or :cli
    # - type: see {Types}; says: one sentence
    # - default: a value, or a Proc over the other settings with default_text in words
    # - development: the default in that environment, where it differs
    # - flags: of the command line; placeholder: for their value, nil where they take none
    # - env: environment variables, the first one set counts; read: a Proc over env where that is not enough
    # - key: the keyword of `queue` or `topic`; also: further names in the same scope; puma: Puma's names, at the top
    # - into: the option that takes the value
    # - outside: of scope :web, and yet a field of the plan itself, not of its `web`
    Option = Struct.new(:name, :group, :scope, :type, :says, :default, :default_text, :development, :flags,
                        :placeholder, :env, :read, :key, :also, :puma, :into, :outside, keyword_init: true) do
      def initialize(scope: :top, flags: [], env: [], also: [], puma: [], **rest)
        super
        freeze
      end

      # @param settings [Hash{Symbol=>Object}] the options that need no other to be known
      # @return [Object] the value when nobody set it
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

      # @return [String] the default, in words
      def default_shown
        return default_text if default_text

        shown = default.nil? ? "none" : type.show(default)
        development.nil? ? shown : "#{shown}; in development #{type.show(development)}"
      end

      # @return [String] how a file writes it
      def line
        case scope
        when :queue, :topic then "#{scope} #{key}: …"
        when :cli then ""
        else name.to_s
        end
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
