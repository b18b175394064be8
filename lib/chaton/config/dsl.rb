# frozen_string_literal: true

require_relative "dsl/jobs"
require_relative "dsl/memory"
require_relative "dsl/section"
require_relative "dsl/streams"
require_relative "dsl/web"
require_relative "hook_names"
require_relative "options"
require_relative "puma_lines"

module Chaton
  module Config
    # A configuration file, config/chaton.rb or Puma's, is evaluated in one of these.
    class DSL < Section
      # Puma's files may say `rackup DefaultRackup`.
      DefaultRackup = Options[:rackup].default

      # What a misspelt name may have been meant to be.
      KNOWN = [*Options.in(:top).flat_map { |option| [option.name, *option.also, *option.puma] },
               *HookNames::ALL.map(&:name), HookNames::ERROR_HANDLER, :web, :jobs, :streams, :memory,
               :plugin, :load].freeze

      define Options.in(:top)

      Options::ALL.each do |option|
        option.puma.each { |name| define_method(name) { |*values| assign(option, name, values) } }
      end

      HookNames::ALL.each do |hook|
        [hook.name, *hook.puma].each { |name| define_method(name) { |*_keys, &block| hook(hook.name, name, block) } }
      end

      PumaLines::ACCEPTED.each do |name, why|
        define_method(name) do |*_values|
          @sources.note(here, "#{name} has no effect: #{why}")
          nil
        end
      end

      PumaLines::REFUSED.each do |name, instead|
        define_method(name) { |*_values| problem("#{name} is Puma's alone: #{instead}") }
      end

      PumaLines::ONLY.each do |name, (value, instead)|
        # Puma takes a switch without a value for on.
        bare = value == false ? true : value
        define_method(name) do |given = bare, *_rest|
          problem("#{name} #{given.inspect} is Puma's alone: #{instead}") unless given == value
        end
      end

      # The web server's own settings.
      def web(*values, &block)
        return problem("web needs a block: web { timeout 30.0 }") unless block && values.empty?

        WebSection.new(@sources, @reader).instance_eval(&block)
        nil
      end

      # Background jobs: their own settings, and that they are run.
      def jobs(*values, &block)
        return problem("jobs needs a block: jobs { queues \"default\" }") unless block && values.empty?

        @sources.section(:jobs)
        JobsSection.new(@sources, @reader).instance_eval(&block)
        nil
      end

      # Streams: which topics there are, who reads them, and where they live. Classes may be named as they are,
      # although the application has not defined them yet.
      def streams(*values, &block)
        return problem("streams needs a block: streams { topic \"events\", EventsConsumer }") \
          unless block && values.empty?

        @sources.section(:streams)
        ClassName.stand_in(self) { StreamsSection.new(@sources, @reader).instance_eval(&block) }
        nil
      end

      # Allocator, collection, ceilings and tracing.
      def memory(*values, &block)
        return problem("memory needs a block: memory { limit \"512M\" }") unless block && values.empty?

        MemorySection.new(@sources, @reader).instance_eval(&block)
        nil
      end

      # Answers requests whose application raised.
      #
      # @param handler [#call, nil] error, env, status → Rack response; fewer parameters get fewer arguments
      def lowlevel_error_handler(handler = nil, &block)
        handler ||= block
        return problem("lowlevel_error_handler needs a block or an object with call") unless handler.respond_to?(:call)

        @sources.hooks[HookNames::ERROR_HANDLER] = [handler]
        nil
      end

      # A plugin of Puma; none of them is run.
      #
      # @param name [Symbol, String]
      def plugin(name, *_rest)
        accepted = PumaLines::PLUGINS[name.to_s]
        return @sources.note(here, "plugin :#{name} is not run: #{accepted}") if accepted

        problem("plugin :#{name} is Puma's alone: #{PumaLines::REFUSED_PLUGINS.fetch(name.to_s, PumaLines::NO_PLUGIN)}")
      end

      # Reads another configuration file at this place.
      #
      # @param path [String] relative to the application's directory
      def load(path, *_rest)
        @reader.file(path.to_s, self, here)
      end

      # Forgets the addresses the file named so far.
      def clear_binds!
        @sources.clear(:file, :binds)
        nil
      end

      private

      def hook(moment, name, block)
        return problem("#{name} needs a block") unless block

        @sources.hooks[moment] << block
        nil
      end
    end
  end
end
