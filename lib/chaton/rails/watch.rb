# frozen_string_literal: true

module Chaton
  # Loads "chaton/rails" while an application is loaded, as soon as ActiveSupport can take hooks: a server has required
  # "chaton" long before, and an application that does without Rails gets no constant of it.
  module RailsWatch
    # Ruby's own, because the application may define `name` in its classes.
    NAME = Module.instance_method(:name)
    private_constant :NAME

    # Ruby rewrites all code that is loaded when such a TracePoint is enabled for the first time. Here that happens in a
    # process that others are forked from, so that they share what was rewritten.
    def self.prepare
      trace = TracePoint.new(:class) { nil }
      trace.enable
      trace.disable
    end

    # @yield loads the application
    def self.during
      trace = TracePoint.new(:class) do |point|
        trace.disable if NAME.bind_call(point.self) == "ActiveSupport" && hook
      end
      trace.enable
      yield
    ensure
      trace.disable
      hook
    end

    # @return [Boolean] whether it is loaded
    def self.hook
      return false unless defined?(::ActiveSupport) && ::ActiveSupport.respond_to?(:on_load)

      require_relative "../rails"
      true
    end
    private_class_method :hook
  end
end
