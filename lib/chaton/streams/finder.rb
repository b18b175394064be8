# frozen_string_literal: true

require_relative "../consumer"

module Chaton
  module Streams
    # Finds the classes that a configuration names.
    class Finder
      # Files of classes that may not be loaded yet.
      FOLDER = "app/consumers"

      # @param root [String] the application's directory
      def initialize(root: Dir.pwd)
        @root = root
      end

      # @param wanted [Class, String]
      # @param topic [String]
      # @return [Class]
      # @raise [ConfigError]
      def consumer(wanted, topic)
        klass = wanted.is_a?(Class) ? wanted : constant(wanted, topic, "is consumed by")
        unless klass.is_a?(Class) && klass < Consumer
          raise ConfigError, "topic #{topic.inspect} is consumed by #{wanted}, which is not a consumer: write class " \
                             "#{wanted} < Chaton::Consumer"
        end
        return klass if klass.method_defined?(:consume)

        raise ConfigError, "topic #{topic.inspect} is consumed by #{wanted}, which has no public method consume; " \
                           "write def consume(batch)"
      end

      # @param wanted [Symbol, String, #call, nil] a String names a class
      # @param topic [String]
      # @return [Symbol, #call, nil]
      # @raise [ConfigError]
      def deserializer(wanted, topic)
        return wanted unless wanted.is_a?(String)

        found = constant(wanted, topic, "is deserialized by")
        return found if found.respond_to?(:call)
        return found.new if found.is_a?(Class) && found.method_defined?(:call)

        raise ConfigError, "topic #{topic.inspect} is deserialized by #{wanted}, which has no call; write " \
                           "def call(record)"
      end

      private

      # Looks for each part in the one before only, not for a constant of the same name outside.
      def constant(name, topic, what)
        name.split("::").inject(Object) do |space, part|
          space.const_get(part, space.equal?(Object))
        rescue NameError => e
          # An error inside the class's own file is raised as it is.
          raise unless e.name.to_s == part && e.receiver.equal?(space)

          raise ConfigError, "topic #{topic.inspect} #{what} #{name}, which does not exist#{nearest(name)}; " \
                             "load its file (streams { load \"app/consumers\" })"
        end
      end

      def nearest(name)
        near = DidYouMean::SpellChecker.new(dictionary: known).correct(name).first if defined?(DidYouMean)
        near && "; did you mean #{near}?"
      end

      def known
        files = Dir.glob("**/*.rb", base: File.join(@root, FOLDER)).map do |path|
          path.delete_suffix(".rb").split("/").map { |part| part.split("_").map(&:capitalize).join }.join("::")
        end
        (descendants(Consumer).filter_map(&:name) + files).uniq
      end

      def descendants(klass) = klass.subclasses.flat_map { |one| [one, *descendants(one)] }
    end
  end
end
