# frozen_string_literal: true

require_relative "dsl/section"
require_relative "dsl/streams"
require_relative "hook_names"
require_relative "puma_lines"
require_relative "service_line"

module Chaton
  module Config
    # Evaluates a configuration file, config/chaton.rb or Puma's.
    class DSL < Section
      # A Puma file may contain `rackup DefaultRackup`.
      DefaultRackup = Options[:rackup].default

      # Name => the class that evaluates its block, and an example.
      SECTIONS = {
        web: [WebSection, "web { timeout 60.0 }"],
        jobs: [Section.for(:jobs), "jobs { queues \"default\" }"],
        streams: [StreamsSection, "streams { topic \"events\", EventsConsumer }"],
        live: [Section.for(:live), "live { ping_s 20.0 }"],
        memory: [Section.for(:memory), "memory { limit \"512M\" }"],
        admin: [Section.for(:admin), "admin { bind \"tcp://127.0.0.1:9394\" }"],
        traces: [Section.for(:traces), "traces { endpoint \"http://127.0.0.1:4318\" }"]
      }.freeze

      SCOPE = :top
      # Names for suggestions.
      KNOWN = [*Options.in(:top).flat_map { |option| [*option.names, *option.puma] },
               *HookNames::ALL.map(&:name), HookNames::ERROR_HANDLER, *SECTIONS.keys, :plugin, :load, :service,
               :ssl_bind].freeze

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
        define_method(name) { |*_values| problem("#{name} is supported only by Puma: #{instead}") }
      end

      PumaLines::ONLY.each do |name, (value, instead)|
        # In Puma a switch without a value means on.
        bare = value == false ? true : value
        define_method(name) do |given = bare, *_rest|
          problem("#{name} #{given.inspect} is supported only by Puma: #{instead}") unless given == value
        end
      end

      SECTIONS.each do |name, (section, example)|
        define_method(name) do |*values, &block|
          next problem("#{name} needs a block: #{example}") unless block && values.empty?

          @sources.within(name) { section.new(@sources, @reader).evaluate(self, &block) }
          nil
        end
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

      # A command that runs beside the server.
      #
      # @param keywords [Hash{Symbol=>Object}] only:, except: environments
      def service(name = nil, command = nil, *rest, **keywords)
        return problem("service takes a name, a command, only: and except:, not #{rest.first.inspect} too") if rest.any?

        line = ServiceLine.of(name, command, keywords)
        twice = @sources.services.any? { |one| one.name == line.name }
        return problem("service #{line.name.inspect} is defined twice") if twice

        @sources.services << line
        nil
      rescue Types::Mismatch => e
        problem("service #{"#{name.inspect} " if name}#{e.message}")
      end

      # A plugin of Puma. What it does is done here in another way, or it is refused.
      def plugin(name, *_rest)
        return assign(Options[:restart_file], :plugin, [PumaLines::RESTART_FILE]) if name.to_s == "tmp_restart"
        return plugin_service(name) if PumaLines::SERVICE_PLUGINS.key?(name.to_s)

        accepted = PumaLines::PLUGINS[name.to_s]
        return @sources.note(here, "plugin :#{name} is not run: #{accepted}") if accepted

        problem("plugin :#{name} is supported only by Puma: #{PumaLines::NO_PLUGIN}")
      end

      # Reads another configuration file here.
      #
      # @param path [String] relative to the application's directory
      def load(path, *_rest)
        @reader.file(path.to_s, self, here)
      end

      # Puma's form of `bind "https://HOST:PORT", cert: …, key: …`.
      def ssl_bind(host = nil, port = nil, parameters = {})
        return problem("ssl_bind takes a host, a port, and cert: and key:") unless port

        assign(Options[:bind], :ssl_bind, ["https://#{host}:#{port}", parameters])
      end

      # Forgets the addresses that the file has named so far.
      def clear_binds!
        @sources.clear(:file, :binds)
        nil
      end

      private

      # Runs the command of a plugin as a service, if the bundle has the gem.
      def plugin_service(name)
        gem, command = PumaLines::SERVICE_PLUGINS.fetch(name.to_s)
        unless @reader.gem?(gem)
          return @sources.note(here, "plugin :#{name} has no effect: the bundle has no gem #{gem}")
        end

        @sources.note(here, "plugin :#{name}: `#{command}` runs as a service")
        service(name, command)
      end

      def hook(moment, name, block)
        return problem("#{name} needs a block") unless block

        @sources.hooks[moment] << block
        nil
      end
    end
  end
end
