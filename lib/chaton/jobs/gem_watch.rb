# frozen_string_literal: true

require_relative "sidekiq_gem"

module Chaton
  module Jobs
    # While an application is loaded: sees the moment in which it opens the module Sidekiq or ActiveJob for the
    # first time. Only then can Sidekiq be told that it is on a server before an initializer asks it, and only
    # then does ActiveJob learn of our adapter, without either constant in applications that use neither.
    class GemWatch
      # Our own stand-in for the gem is no gem.
      OWN = File.expand_path("..", __dir__)
      # What is looked out for.
      SIDEKIQ = "Sidekiq"
      ADAPTERS = "ActiveJob::QueueAdapters"
      # The file of our adapter.
      ADAPTER = "active_job/queue_adapters/chaton_adapter"

      # @param server [Boolean] whether Sidekiq is to find itself on a server
      def initialize(server:)
        @wanted = server ? [SIDEKIQ, ADAPTERS] : [ADAPTERS]
        @trace = TracePoint.new(:class) { |point| seen(point) }
      end

      # @return [self]
      def start
        @wanted -= [ADAPTERS] if defined?(::ActiveJob::QueueAdapters) && offer_adapter(::ActiveJob::QueueAdapters)
        @trace.enable unless @wanted.empty?
        self
      end

      # @return [void]
      def stop
        @trace.disable
      end

      private

      def seen(point)
        name = point.self.name
        return unless @wanted.include?(name) && !point.path.start_with?(OWN)

        name == SIDEKIQ ? SidekiqGem.be_server : offer_adapter(point.self)
        @wanted -= [name]
        stop if @wanted.empty?
      end

      # @return [true]
      def offer_adapter(adapters)
        unless adapters.autoload?(:ChatonAdapter) || adapters.const_defined?(:ChatonAdapter, false)
          # ActiveSupport gives that module a method of the same name, and another meaning.
          Module.instance_method(:autoload).bind_call(adapters, :ChatonAdapter, ADAPTER)
        end
        true
      end
    end
  end
end
