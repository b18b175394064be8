# frozen_string_literal: true

require_relative "../job"

module Sidekiq
  # Makes a class a job, with Sidekiq's method names.
  module Job
    # Chaton's module is included first, so that methods of this one override it.
    # @private
    def self.append_features(base)
      base.include(Chaton::Job)
      super
    end

    # @private
    def self.included(base) = base.extend(ClassMethods)

    # @return [#stopping?, nil] instead of the worker, in a test
    attr_accessor :_context

    # @return [Boolean] whether the worker stops
    def interrupted? = _context ? _context.stopping? : super

    # Sidekiq's names of class methods.
    module ClassMethods
      # Sets options; any key is allowed.
      #
      # @return [Hash{String=>Object}]
      def sidekiq_options(given = {}) = declare(check_options(given))

      # As Chaton's `retry_in`.
      def sidekiq_retry_in(&block) = retry_in(&block)

      # As Chaton's `retries_exhausted`.
      def sidekiq_retries_exhausted(&block) = retries_exhausted(&block)

      # Sidekiq's short form of `sidekiq_options queue:`.
      # @param name [String, Symbol]
      def queue_as(name) = sidekiq_options("queue" => name.to_s)

      # @param item [Hash]
      # @return [String, nil]
      def client_push(item) = Chaton::Jobs.client.push(item.transform_keys(&:to_s))

      # @return [Hash{String=>Object}]
      def sidekiq_options_hash = get_sidekiq_options

      # Defines attributes of the class, which subclasses inherit until they set their own; objects can read them.
      def sidekiq_class_attribute(*names)
        names.each do |name|
          variable = :"@#{name}"
          define_singleton_method("#{name}=") { |value| instance_variable_set(variable, value) }
          define_singleton_method(name) do
            instance_variable_defined?(variable) ? instance_variable_get(variable) : inherited_from(name)
          end
          define_method(name) { self.class.public_send(name) }
        end
      end

      # The names of long ago.
      { delay: "perform_async", delay_for: "perform_in", delay_until: "perform_at" }.each do |name, instead|
        define_method(name) { |*| raise ArgumentError, "there is no #{name}: call .#{instead} instead" }
      end

      # Sidekiq allows any key.
      # @private
      def check_options(given) = given.transform_keys(&:to_s)

      private

      def job_defaults = Sidekiq.default_job_options
    end
  end
  Worker = Job

  # A job that can be interrupted between two items.
  module IterableJob
    # @private
    def self.included(base)
      base.include(Job)
      base.include(Chaton::IterableJob)
    end
  end
  Job::Iterable = IterableJob
end
