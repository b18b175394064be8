# frozen_string_literal: true

module Chaton
  module Jobs
    # Checks that arguments come back equal from JSON. The native client checks those of plain jobs by the same
    # rule and with the same messages; this is for jobs that are a Hash before they are stored.
    module Arguments
      # Deeper arguments are a mistake, or an attack on the parser.
      DEPTH_MAX = 100

      # What to pass instead, by the class that was passed.
      INSTEAD = { Symbol => "use a String", Time => "use its to_f or iso8601", Float => "use a finite number" }.freeze

      # @param class_name [String] for the message
      # @raise [ArgumentError] naming the argument
      def self.check(class_name, args)
        raise ArgumentError, "args of #{class_name} is #{args.class}; it must be an Array" unless args.is_a?(Array)

        args.each_with_index do |value, index|
          wrong = fault(value, "argument #{index + 1}", 1) or next
          raise ArgumentError, "Job arguments to #{class_name} must come back equal from JSON, but #{wrong}"
        end
      end

      # @param mode [Symbol] :raise: they are checked where they are written; :warn, :allow: they become what JSON
      #   makes of them
      def self.accept(class_name, args, mode)
        return args if mode == :raise

        begin
          check(class_name, args)
          return args
        rescue ArgumentError => e
          raise unless args.is_a?(Array)

          Jobs.logger.warn(e.message) if mode == :warn
        end
        JSON.parse(JSON.generate(args, max_nesting: DEPTH_MAX + 1), max_nesting: false)
      rescue JSON::GeneratorError, JSON::NestingError => e
        raise ArgumentError, "Job arguments to #{class_name} cannot be written as JSON: #{e.message}"
      end

      # @return [String, nil] what is wrong and where
      def self.fault(value, path, depth)
        case value
        when nil, true, false, Integer then nil
        when String then text_fault(value, path)
        when Float then describe(value, path) unless value.finite?
        when Array then depth_fault(path, depth) || array_fault(value, path, depth)
        when Hash then depth_fault(path, depth) || hash_fault(value, path, depth)
        else describe(value, path)
        end
      end

      def self.depth_fault(path, depth)
        "#{path} is nested more than #{DEPTH_MAX} deep" if depth > DEPTH_MAX
      end

      def self.text_fault(value, path)
        return describe(value, path) unless value.instance_of?(String)

        plain = value.encoding == Encoding::UTF_8 || value.ascii_only?
        return if plain && value.valid_encoding?

        "#{path} is no UTF-8 text (#{value.encoding}); encode binary data as Base64"
      end

      def self.array_fault(value, path, depth)
        return describe(value, path) unless value.instance_of?(Array)

        value.each_with_index do |inner, index|
          found = fault(inner, "#{path}[#{index}]", depth + 1)
          return found if found
        end
        nil
      end

      def self.hash_fault(value, path, depth)
        # A subclass, such as a Hash with indifferent access, does not come back.
        return describe(value, path) unless value.instance_of?(Hash)

        value.each do |key, inner|
          return "#{key.inspect} is a #{key.class} (a key of #{path}); use a String" unless key.is_a?(String)

          found = fault(inner, "#{path}[#{key.inspect}]", depth + 1)
          return found if found
        end
        nil
      end

      def self.describe(value, path)
        shown = value.inspect
        shown = "#{shown[0, 60]}…" if shown.size > 60
        instead = INSTEAD.find { |kind, _| value.is_a?(kind) }&.last || "pass an id or plain values instead"
        "#{shown} is a #{value.class} (#{path}); #{instead}"
      end
      private_class_method :fault, :depth_fault, :text_fault, :array_fault, :hash_fault, :describe
    end
  end
end
