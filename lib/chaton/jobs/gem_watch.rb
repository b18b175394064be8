# frozen_string_literal: true

require_relative "sidekiq_gem"

module Chaton
  module Jobs
    # Detects, while an application is loaded, when the modules Sidekiq and ActiveJob are opened for the first time.
    # At that moment Sidekiq is marked as a server, before an initializer asks, and Chaton's adapter is offered to
    # ActiveJob. Applications that use neither get neither constant.
    class GemWatch
      # Files of Chaton: its own module Sidekiq is not the gem.
      OWN = File.expand_path("..", __dir__)
      # Names of the modules.
      SIDEKIQ = "Sidekiq"
      ADAPTERS = "ActiveJob::QueueAdapters"
      # File of Chaton's adapter.
      ADAPTER = "active_job/queue_adapters/chaton_adapter"

      # Ruby's own, because the application may define `name` in its classes.
      NAME = Module.instance_method(:name)
      private_constant :NAME

      # @param server [Boolean] whether `Sidekiq.server?` is to be true
      # @yield loads the application
      def self.during(server:)
        watch = new(server: server)
        watch.start
        yield
      ensure
        watch.stop
      end

      # @param server [Boolean] see {.during}
      def initialize(server:)
        @wanted = server ? [SIDEKIQ, ADAPTERS] : [ADAPTERS]
        @trace = TracePoint.new(:class) { |point| seen(point) }
      end

      def start
        @wanted -= [ADAPTERS] if defined?(::ActiveJob::QueueAdapters) && offer_adapter(::ActiveJob::QueueAdapters)
        @trace.enable unless @wanted.empty?
      end

      def stop
        @trace.disable
      end

      private

      def seen(point)
        name = NAME.bind_call(point.self)
        return unless @wanted.include?(name) && !point.path.start_with?(OWN)

        name == SIDEKIQ ? SidekiqGem.be_server : offer_adapter(point.self)
        @wanted -= [name]
        stop if @wanted.empty?
      end

      def offer_adapter(adapters)
        unless adapters.autoload?(:ChatonAdapter) || adapters.const_defined?(:ChatonAdapter, false)
          # ActiveSupport replaces `autoload` of that module.
          Module.instance_method(:autoload).bind_call(adapters, :ChatonAdapter, ADAPTER)
        end
        true
      end
    end
  end
end
