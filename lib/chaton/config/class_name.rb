# frozen_string_literal: true

module Chaton
  module Config
    # Stands for a class that a configuration file names before the application has defined it:
    # `topic "events", EventsConsumer`. Only the name is kept; it is looked up once the application is loaded.
    class ClassName < Module
      PATTERN = /\A(?:::)?[A-Z]\w*(?:::[A-Z]\w*)*\z/

      # While the block runs, constants that a file does not know are such names.
      #
      # @param dsl [Object] what the file is evaluated in
      def self.stand_in(dsl)
        scope = dsl.singleton_class
        scope.define_singleton_method(:const_missing) { |name| ClassName.new(name) }
        yield
      ensure
        scope.singleton_class.send(:remove_method, :const_missing)
      end

      # @param value [Object] as written: a class, a placeholder, a String or a Symbol
      # @return [String, Class, nil] its name, the class where it has none, nil for what can be no class
      def self.of(value)
        case value
        when ClassName then value.to_s
        when Class then value.name || value
        when String, Symbol then value.to_s.delete_prefix("::").freeze if value.match?(PATTERN)
        end
      end

      def initialize(name)
        super()
        @written = name.to_s.freeze
      end

      # @return [ClassName] a constant inside of it
      def const_missing(name) = ClassName.new("#{self}::#{name}")

      def to_s = @written
      alias name to_s
      alias inspect to_s
    end
  end
end
