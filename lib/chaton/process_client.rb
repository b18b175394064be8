# frozen_string_literal: true

require_relative "errors"

module Chaton
  # The common part of {Jobs} and {Streams}: the process's client, made on first use from its configuration, and the
  # logger. Each of them has a private method `make_client`.
  module ProcessClient
    # @private
    def self.extended(base)
      base.instance_variable_set(:@lock, Mutex.new)
    end

    # The client of this process. A worker makes it from its own plan, any other process from what the application sets
    # in Ruby, CHATON_CONFIG or config/chaton.rb.
    #
    # @return [Jobs::Client, Streams::Client, Streams::Spool] a spool when workers are still to be forked
    # @raise [ConfigError] when the configuration has no such section
    def client
      @client || @lock.synchronize { @client ||= make_client }
    end

    # Replaces the client.
    #
    # @param client [Object, nil] nil: a new one is made on the next use
    # @return [Object, nil] the former one
    def swap_client(client)
      @lock.synchronize do
        former = @client
        @client = client
        former
      end
    end

    # @return [#info, #warn, #error] the logger of jobs or consumers: the one that was set, else that of Rails
    def logger = @logger || rails_logger || (@own_logger ||= Logger.new)

    attr_writer :logger

    private

    # @param name [Symbol] :jobs or :streams
    # @param example [String] a section for the error
    def configured(name, example)
      plan = @plan || Chaton.read_configuration
      found = settled(plan).public_send(name)
      # The application may still set it.
      @plan = plan if found
      return found if found

      raise ConfigError, "no #{name} are configured: write `#{example}` into " \
                         "#{plan.config_file || "config/chaton.rb"} (or name the file in CHATON_CONFIG)" \
                         "#{plan.warnings.map { |warning| "; #{warning}" }.join}"
    end

    # It may come later than the first call.
    def rails_logger = (::Rails.logger if defined?(::Rails.logger))
  end
end
