# frozen_string_literal: true

require "json"

module Chaton
  module Jobs
    # The arguments of a job as a person may see them: members of objects whose names the application filters are
    # masked. The filters are Rails' `filter_parameters`; without Rails, those of a new Rails application.
    module ArgumentFilter
      # What a masked value is replaced by, as Rails does.
      MASK = "[FILTERED]"
      # config/initializers/filter_parameter_logging.rb of Rails 8.
      NAMES = /passw|email|secret|token|_key|crypt|salt|certificate|otp|ssn|cvv|cvc/i
      # What ActiveJob hides in its own log.
      HIDDEN = "not shown: %s has log_arguments false"
      private_constant :MASK, :NAMES, :HIDDEN

      # @param json [String] the arguments of a job document
      # @return [Array, String] the filtered arguments, those of ActiveJob without their envelope; or why there are none
      def self.call(json)
        arguments = JSON.parse(json, max_nesting: false)
        envelope = arguments.first
        return filtered(arguments) unless envelope.is_a?(Hash) && envelope.key?("job_class")
        return format(HIDDEN, envelope["job_class"]) if hidden?(envelope["job_class"])

        filtered(envelope["arguments"])
      end

      # @return [Boolean] whether the class of ActiveJob keeps its arguments out of logs
      def self.hidden?(name)
        job_class = JobClass.constant(name)
        job_class.respond_to?(:log_arguments?) && !job_class.log_arguments?
      rescue NameError, LoadError
        false
      end

      def self.filtered(value)
        case value
        when Array then value.map { |one| filtered(one) }
        when Hash then rails ? rails.filter(value) : masked(value)
        else value
        end
      end

      def self.masked(members)
        members.to_h { |name, value| [name, name.match?(NAMES) ? MASK : filtered(value)] }
      end

      # @return [ActiveSupport::ParameterFilter, nil] with the filters that the application has now
      def self.rails
        return unless defined?(::Rails) && ::Rails.respond_to?(:application) && ::Rails.application

        require "active_support/parameter_filter"
        ActiveSupport::ParameterFilter.new(::Rails.application.config.filter_parameters)
      end
      private_class_method :hidden?, :filtered, :masked, :rails
    end
  end
end
