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
          wrong = fault(value, +"", 1) or next
          raise ArgumentError, "argument #{index + 1}#{wrong[0]} of #{class_name} #{wrong[1]}"
        end
      end

      # @return [Array(String, String), nil] where and what
      def self.fault(value, path, depth)
        case value
        when nil, true, false, Integer then nil
        when String then text_fault(value, path)
        when Float then [path, describe(value)] unless value.finite?
        when Array then depth_fault(path, depth) || array_fault(value, path, depth)
        when Hash then depth_fault(path, depth) || hash_fault(value, path, depth)
        else [path, describe(value)]
        end
      end

      def self.depth_fault(path, depth)
        [path, "is nested more than #{DEPTH_MAX} deep"] if depth > DEPTH_MAX
      end

      def self.text_fault(value, path)
        return [path, describe(value)] unless value.instance_of?(String)

        plain = value.encoding == Encoding::UTF_8 || value.ascii_only?
        return if plain && value.valid_encoding?

        [path, "is no UTF-8 text (#{value.encoding}); encode binary data as Base64"]
      end

      def self.array_fault(value, path, depth)
        return [path, describe(value)] unless value.instance_of?(Array)

        value.each_with_index do |inner, index|
          found = fault(inner, "#{path}[#{index}]", depth + 1)
          return found if found
        end
        nil
      end

      def self.hash_fault(value, path, depth)
        # A subclass, such as a Hash with indifferent access, does not come back.
        return [path, describe(value)] unless value.instance_of?(Hash)

        value.each do |key, inner|
          return [path, "has the key #{key.inspect}, a #{key.class}; use a String"] unless key.is_a?(String)

          found = fault(inner, "#{path}[#{key.inspect}]", depth + 1)
          return found if found
        end
        nil
      end

      def self.describe(value)
        shown = value.inspect
        shown = "#{shown[0, 60]}…" if shown.size > 60
        instead = INSTEAD.find { |kind, _| value.is_a?(kind) }&.last || "pass an id or plain values instead"
        "is a #{value.class} (#{shown}), which JSON does not bring back; #{instead}"
      end
      private_class_method :fault, :depth_fault, :text_fault, :array_fault, :hash_fault, :describe
    end
  end
end
