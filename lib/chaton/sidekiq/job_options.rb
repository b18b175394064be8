# frozen_string_literal: true

module Sidekiq
  module Job
    # Sidekiq's options for classes of ActiveJob: `ActiveJob::Base.include Sidekiq::Job::Options`, which
    # "chaton/sidekiq" does by itself in an application with ActiveSupport.
    module Options
      # @private
      def self.included(base) = base.extend(ClassMethods)

      # Methods of such a class. Subclasses inherit what they set.
      module ClassMethods
        # Sets options; any key is allowed.
        #
        # @return [Hash{String=>Object}]
        def sidekiq_options(given = {})
          @sidekiq_options = get_sidekiq_options.merge(given.transform_keys(&:to_s)).freeze
        end

        # @return [Hash{String=>Object}]
        def get_sidekiq_options = @sidekiq_options || of_parent(:get_sidekiq_options) || Sidekiq.default_job_options

        # As Chaton's `retry_in`.
        def sidekiq_retry_in(&block)
          @sidekiq_retry_in = block
        end

        # As Chaton's `retries_exhausted`.
        def sidekiq_retries_exhausted(&block)
          @sidekiq_retries_exhausted = block
        end

        # @return [Proc, nil]
        def sidekiq_retry_in_block = @sidekiq_retry_in || of_parent(:sidekiq_retry_in_block)

        # @return [Proc, nil]
        def sidekiq_retries_exhausted_block
          @sidekiq_retries_exhausted || of_parent(:sidekiq_retries_exhausted_block)
        end

        private

        def of_parent(name) = superclass.respond_to?(name) ? superclass.public_send(name) : nil
      end

      if defined?(::ActiveSupport) && ::ActiveSupport.respond_to?(:on_load)
        ::ActiveSupport.on_load(:active_job) { include ::Sidekiq::Job::Options }
      end
    end
  end
end
