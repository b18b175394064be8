# frozen_string_literal: true

module Chaton
  module Jobs
    # A job of a class that the worker does not have.
    class UnknownClass < NameError
      def initialize(name)
        super(nil, name)
      end

      # Overridden because Ruby adds source lines to the message of a NameError.
      def message = "there is no class #{name}; load its file (jobs { load \"app/jobs\" }) where its jobs are run"
      alias to_s message
    end

    # A job class as the worker needs it, examined once, with its first job.
    class JobClass
      # Classes that wrap an ActiveJob, one for each adapter that may have enqueued it.
      WRAPPERS = %w[ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper Sidekiq::ActiveJob::Wrapper
                    ActiveJob::QueueAdapters::ChatonAdapter::JobWrapper].freeze

      attr_reader :klass

      # @raise [NameError] when there is no such class
      def initialize(name)
        # Names of ActiveJobs that exist.
        @wrapped = {} if WRAPPERS.include?(name)
        @klass = self.class.constant(name)
        @ours = @klass.include?(Job)
        @active_job = JobClass.active_job?(@klass)
        @jid = !@ours && @klass.method_defined?(:jid=)
        @bid = !@ours && @klass.method_defined?(:bid=)
        # Iterable jobs of the sidekiq gem ask their context whether to stop.
        @context = !@ours && @klass.method_defined?(:_context=)
        options = @klass.respond_to?(:get_sidekiq_options) ? @klass.get_sidekiq_options : {}
        @lost = options.keys & Options::EXTRA unless @ours
        @in_transaction = @ours && @klass.declared.options["transaction"] == true
        if @in_transaction && @klass.include?(IterableJob)
          raise ConfigError, "#{name}: an iterable job runs for too long to be one transaction; leave out transaction:"
        end
        @unlocks_first = !options["unique_for"].nil? && options["unique_until"].to_s == "start"
      end

      # @return [Boolean] whether a job's lock is released before the job begins
      def unlocks_first? = @unlocks_first

      # @return [Boolean] whether the job is one transaction
      def in_transaction? = @in_transaction

      # @return [Array<String>, nil] once: options of the class that were not applied to this job, because the sidekiq
      #   gem pushed it in a process without Chaton
      def lost_options(job)
        return if @lost.nil? || @lost.empty? || job.payload.include?("\"chaton\":")

        @lost.tap { @lost = nil }
      end

      # Makes an object for one job.
      #
      # @raise [UnknownClass] when it wraps an ActiveJob whose class does not exist
      def instance(job)
        find_wrapped(job) if @wrapped
        instance = @active_job ? named : @klass.new
        if @ours || @active_job
          instance.native_job = job
        else
          instance.jid = job.jid if @jid
          instance.bid = job.bid if @bid && job.bid
          instance._context = Jobs if @context
        end
        instance
      end

      # @return [Boolean] whether it is a job of ActiveJob, enqueued under its own name
      def self.active_job?(klass) = klass.is_a?(Class) && defined?(::ActiveJob::Base) && klass <= ::ActiveJob::Base

      # The class of a name. Each part is looked up in the part before only, not in its lexical or global scope.
      #
      # @raise [NameError]
      def self.constant(name)
        return wrapper(name) if WRAPPERS.include?(name)

        name.split("::").inject(Object) do |space, part|
          part.empty? ? space : space.const_get(part, space.equal?(Object))
        rescue NameError => e
          # Another NameError comes from the file of the class.
          raise unless e.name.to_s == part && e.receiver.equal?(space)

          raise UnknownClass, name
        end
      end

      # Rails' adapter for Sidekiq cannot be loaded without the gem; Chaton's wrapper does the same.
      def self.wrapper(name)
        if SidekiqGem.loaded? && !name.include?("Chaton")
          begin
            return name.split("::").inject(Object) { |space, part| space.const_get(part, false) }
          rescue NameError, LoadError
            # This version of the gem has the wrapper under the other name.
          end
        end
        require "active_job/queue_adapters/chaton_adapter"
        ::ActiveJob::QueueAdapters::ChatonAdapter::JobWrapper
      end
      private_class_method :wrapper

      private

      # Looked up in the way of ActiveJob, which would raise a NameError from within the job.
      def find_wrapped(job)
        data = job.args.first
        name = data["job_class"] if data.is_a?(Hash)
        return if name.nil? || @wrapped.key?(name)
        raise UnknownClass, name unless name.safe_constantize

        @wrapped[name] = true
      end

      def named
        require "active_job/queue_adapters/chaton_adapter"
        ::ActiveJob::QueueAdapters::ChatonAdapter::NamedJob.new(@klass)
      end
    end
  end
end
