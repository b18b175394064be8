# frozen_string_literal: true

require "fileutils"
require "rbconfig"
require_relative "../rack_handler"
require_relative "../memory/launch"

module Chaton
  # `bin/rails server` of an application whose Gemfile has chaton: Rails starts Chaton, unless `-u`, RACKUP_HANDLER or
  # RACK_HANDLER names another server. A single process in development serves in the process of `rails server`; any
  # other one becomes the `chaton` command, before the application is initialized, and so has its allocator, workers and
  # phased restart.
  module RailsServer
    # Before the application changes it.
    ENVIRONMENT = ENV.to_h.freeze
    # Asks the `chaton` command to write Rails' log to standard output too, as `rails server` does.
    LOG_TO_STDOUT = "CHATON_RAILS_LOG_TO_STDOUT"
    # The name under which Rack knows {Handler}.
    NAME = "chaton"

    # The handler of Rails: its errors are sentences, and Rails prints its name.
    module Handler
      # @see RackHandler.run
      def self.run(...)
        RackHandler.run(...)
      rescue Chaton::Error => e
        abort "chaton: #{e.message}"
      end

      def self.to_s = "Chaton #{VERSION}"
    end

    class << self
      # Makes Chaton the server of `rails server`, where no other one is named.
      def install
        return unless wanted?

        ENV[variable] = NAME
        return ::Rackup::Handler.register(NAME, Handler) if rackup?

        require "rack/handler"
        ::Rack::Handler.register(NAME, "Chaton::RailsServer::Handler")
      end

      # Replaces the process, if it is `rails server` and cannot serve by itself. Rails has made its server then, and
      # has not initialized the application.
      def become_command
        options = ObjectSpace.each_object(::Rails::Server).first&.options
        return if options.nil? || options[:daemonize] || (options[:server] || ENV.fetch(variable, nil)) != NAME
        return if Memory::Launch.refusal(RackHandler.read(options))

        make_files(options)
        puts "=> Booting #{Handler}"
        $stdout.flush
        further = options[:log_stdout] ? { LOG_TO_STDOUT => "1" } : {}
        Process.exec({ **ENVIRONMENT, **further }, *command(options), unsetenv_others: true)
      rescue Chaton::Error => e
        abort "chaton: #{e.message}"
      end

      # @param options [Hash{Symbol=>Object}] of Rails
      def command(options)
        root = File.expand_path("../../..", __dir__)
        path = Gem.loaded_specs.key?("chaton") ? [] : ["-I", File.join(root, "lib")]
        [RbConfig.ruby, *path, File.join(root, "exe/chaton"), "serve", *RackHandler.command_arguments(options)]
      end

      private

      # @return [Boolean] whether the bundle has Rack 3 or later
      def rackup? = !defined?(::Rackup::Handler).nil?

      # Rack looks there for the server's name.
      def variable = rackup? ? "RACKUP_HANDLER" : "RACK_HANDLER"

      def wanted? = %w[RACKUP_HANDLER RACK_HANDLER].all? { |name| [nil, NAME].include?(ENV.fetch(name, nil)) }

      # As Rails does when its server starts.
      def make_files(options)
        FileUtils.mkdir_p(%w[cache pids sockets].map { |name| File.join("tmp", name) })
        ::Rails::DevCaching.enable_by_argument(options[:caching]) if options[:environment] == "development"
      end
    end
  end
end
