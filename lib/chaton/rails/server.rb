# frozen_string_literal: true

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

    # The handler under the name that Rails prints.
    module Handler
      def self.run(...) = RackHandler.run(...)
      def self.to_s = "Chaton #{VERSION}"
    end

    # @param server [Class] Rails::Server
    def self.install(server)
      server.prepend(self)
    end

    # Rails calls it to find the handler.
    def server
      named = options[:server] || ENV.fetch("RACKUP_HANDLER", nil) || ENV.fetch("RACK_HANDLER", nil)
      found = named ? super : RackHandler
      found.equal?(RackHandler) ? Handler : found
    end

    # Chaton prints its addresses itself.
    def served_url = (super unless server.equal?(Handler))

    def start(*)
      become_command if server.equal?(Handler) && !options[:daemonize]
      super
    rescue Chaton::Error => e
      abort "chaton: #{e.message}"
    end

    # @param options [Hash{Symbol=>Object}] of Rails
    # @return [Array<String>]
    def self.command(options)
      root = File.expand_path("../../..", __dir__)
      path = Gem.loaded_specs.key?("chaton") ? [] : ["-I", File.join(root, "lib")]
      [RbConfig.ruby, *path, File.join(root, "exe/chaton"), "serve", *RackHandler.command_arguments(options)]
    end

    private

    # Replaces the process, unless it can serve by itself.
    def become_command
      return if Memory::Launch.refusal(RackHandler.read(options))

      create_tmp_directories
      setup_dev_caching
      further = options[:log_stdout] ? { LOG_TO_STDOUT => "1" } : {}
      Process.exec({ **ENVIRONMENT, **further }, *RailsServer.command(options), unsetenv_others: true)
    end
  end
end
