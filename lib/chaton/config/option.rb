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
    # - key: the name in its scope, if another scope has it too; also: further names in the same scope; puma: Puma's
    #   names, at the top
    # - into: the option that takes the value
    # - engine: the part of the engine's document that takes it, such as :pool or %i[web limits], under its key
    # - elsewhere: Hash of further scopes in which the option exists, each with what differs there; there its name is
    #   SCOPE_NAME
    # - because: set for a value that nobody sets: why it is the default (see {Options::FIXED})
    Option = Struct.new(:name, :group, :scope, :type, :says, :default, :default_text, :development, :flags,
                        :placeholder, :env, :read, :key, :also, :puma, :into, :engine, :elsewhere,
                        :because,
                        keyword_init: true) do
      # @return [Option] inside the block of a scope
      def self.in(scope, name, group, type, default, says, **rest)
        new(name: name, group: group, scope: scope, type: type, default: default, says: says, **rest)
      end

      # @param says [String] why, as a part of a sentence
      # @return [Option] a value that was an option once, and that only tests change
      def self.fixed(scope, name, value, because, **rest)
        type = name.to_s.include?("bytes") ? Types::Bytes.new(0..(1 << 50)) : Types::Number.new(0..(1 << 50))
        type = Types::Number.new(0.0..1e9) if value.is_a?(Float)
        type = Types::Switch.new if value == true
        new(name: name, scope: scope, type: type, default: value, because: because,
            also: [name.to_s.sub(/_m?s\z/, "").to_sym, *rest.delete(:also)], **rest)
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

      def initialize(scope: :top, flags: [], env: [], also: [], puma: [], engine: nil, elsewhere: {}, **rest)
        super(scope: scope, flags: flags, env: env, also: also, puma: puma, engine: [*engine], elsewhere: elsewhere,
              **rest)
        freeze
      end

      # @return [Array<Option>] it, and the same in other scopes
      def everywhere
        [self, *elsewhere.map { |scope, changes|
          Option.new(name: :"#{scope}_#{name}", scope: scope, key: name, type: type, says: says, default: default,
                     default_text: default_text, also: [name.to_s.delete_suffix("_s").to_sym], **changes)
        }]
      end

      # @return [Symbol] its name in its scope
      def written = key || name

      # @return [Array<Symbol>] all names in its scope
      def names = [name, *key, *also].uniq

      # @return [String] what is said to somebody who sets a value that is fixed
      def refusal(label) = "#{label} is now fixed at #{default_shown}, because #{because}; remove the line"

      # @param settings [Hash{Symbol=>Object}] the options that need no other to be known
      # @return [Object] the value if no source sets it
      def default_in(environment, settings)
        return development if environment == "development" && !development.nil?

        default.respond_to?(:call) ? default.call(settings) : default
      end

      # @return [Symbol] the option its values go to
      def target = into || name

      # @raise [Types::Mismatch]
      def cast(values)
        type.arguments.cover?(values.size) || raise(Types::Mismatch, "takes #{counted}, not #{values.size}")
        type.cast(*values)
      end

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
