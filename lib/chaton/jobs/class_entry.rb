# frozen_string_literal: true

module Chaton
  module Jobs
    # A job of a class that the worker does not have.
    class UnknownClass < NameError
      # @param name [String]
      def initialize(name)
        super(nil, name)
      end

      # Written here because Ruby adds lines of our own source to those of a NameError.
      #
      # @return [String]
      def message = "there is no class #{name}; load its file (jobs { load \"app/jobs\" }) where its jobs are run"
      alias to_s message
    end

    # What a worker knows of a job class, found out when its first job comes.
    class ClassEntry
      # ActiveJob's jobs travel in a wrapper, one for each adapter that may have enqueued them.
      WRAPPERS = %w[ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper Sidekiq::ActiveJob::Wrapper
                    ActiveJob::QueueAdapters::ChatonAdapter::JobWrapper].freeze

      # @return [Class]
      attr_reader :klass

      # @param name [String]
      # @raise [NameError] for a class that is not there
      def initialize(name)
        @klass = self.class.constant(name)
        @ours = @klass.include?(Job)
        @jid = !@ours && @klass.method_defined?(:jid=)
        @bid = !@ours && @klass.method_defined?(:bid=)
        # Sidekiq's iterable jobs ask it whether to stop.
        @context = !@ours && @klass.method_defined?(:_context=)
        options = @klass.respond_to?(:get_sidekiq_options) ? @klass.get_sidekiq_options : {}
        @unlocks_first = !options["unique_for"].nil? && options["unique_until"].to_s == "start"
      end

      # @return [Boolean] whether its jobs give up their locks before they begin
      def unlocks_first? = @unlocks_first

      # A new instance that knows which job it is.
      #
      # @param unit [Native::Job]
      # @return [#perform]
      def instance(unit)
        instance = @klass.new
        return instance.tap { instance.unit = unit } if @ours

        instance.jid = unit.jid if @jid
        instance.bid = unit.bid if @bid && unit.bid
        instance._context = Jobs if @context
        instance
      end

      # The class of a name. Each part is looked for in the one before only: what is outside of it and happens
      # to have the same name is not meant.
      #
      # @param name [String]
      # @return [Class]
      # @raise [NameError]
      def self.constant(name)
        return wrapper(name) if WRAPPERS.include?(name)

        name.split("::").inject(Object) do |space, part|
          part.empty? ? space : space.const_get(part, space.equal?(Object))
        rescue NameError => e
          # One that comes out of the class's own file speaks for itself.
          raise unless e.name.to_s == part && e.receiver.equal?(space)

          raise UnknownClass, name
        end
      end

      # Rails' adapter for Sidekiq cannot be loaded without the gem; our wrapper does the same.
      def self.wrapper(name)
        if SidekiqGem.loaded? && !name.include?("Chaton")
          begin
            return name.split("::").inject(Object) { |space, part| space.const_get(part, false) }
          rescue NameError, LoadError
            # The gem's generation has the wrapper under its other name.
          end
        end
        require "active_job/queue_adapters/chaton_adapter"
        ::ActiveJob::QueueAdapters::ChatonAdapter::JobWrapper
      end
      private_class_method :wrapper
    end
  end
end
