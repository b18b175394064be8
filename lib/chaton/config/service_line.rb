# frozen_string_literal: true

require_relative "nearest"
require_relative "types"

module Chaton
  module Config
    # A `service` line: a command that runs beside the server, such as `service "css", "bin/rails tailwindcss:watch",
    # only: :development`.
    ServiceLine = Struct.new(:name, :command, :only, :except) do
      # @param name [String, Symbol] for the log and `chaton status`
      # @param command [String, Array<String>] a String with characters of the shell is run by /bin/sh
      # @param keywords [Hash{Symbol=>Object}] only:, except: environments
      # @raise [Types::Mismatch]
      def self.of(name, command, keywords)
        unless name.to_s.match?(/\A[\w.-]+\z/)
          raise Types::Mismatch, "needs a name of letters, digits, -, _ and ., not #{name.inspect}"
        end

        known = ServiceLine::KEYWORDS
        key = keywords.keys.find { |one| !known.include?(one) }
        nearest = key && Nearest.to(key, known)
        raise Types::Mismatch, "has no #{key}:#{"; did you mean #{nearest}:?" if nearest}" if key

        new(name.to_s, words(command), *known.map { |one| Array(keywords[one]).map(&:to_s) }).freeze
      end

      # @return [Array<String>] program and arguments
      def self.words(command)
        words = command.is_a?(String) && !command.match?(ServiceLine::SHELL) ? command.split : command
        words = ["/bin/sh", "-c", words] if words.is_a?(String)
        usable = words.is_a?(Array) && !words.empty? && words.all? { |word| word.is_a?(String) && !word.include?("\0") }
        return words.map(&:dup).each(&:freeze).freeze if usable

        raise Types::Mismatch, "needs a command, as a String or an Array of them, not #{command.inspect}"
      end
      private_class_method :words

      # @return [Boolean] whether it runs there
      def in?(environment) = (only.empty? || only.include?(environment)) && !except.include?(environment)

      def to_s = "#{name} (#{command.first == "/bin/sh" ? command.last : command.join(" ")})"
    end
    ServiceLine::KEYWORDS = %i[only except].freeze
    # Characters that mean something to the shell.
    ServiceLine::SHELL = %r{[^\w@%+:,./\s-]}
  end
end
