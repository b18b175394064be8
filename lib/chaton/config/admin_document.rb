# frozen_string_literal: true

require_relative "../version"
require_relative "options"

module Chaton
  module Config
    # The settings of the admin endpoint, and of the dashboard in an application, as the native extension takes them.
    # Rust has no defaults: every field is set here.
    class AdminDocument
      # @param listeners [Array<Hash>] none in an application
      # @param store [Hash, nil] settings of the store of the jobs; nil: none is read
      def initialize(plan, store:, listeners: [])
        @plan = plan
        @store = store
        @listeners = listeners
      end

      def to_h
        { **Options.document(:admin, method(:setting)),
          listeners: @listeners, store: @store,
          alive_timeout_s: @plan.alive_timeout_s, queue_age_s: @plan.queue_age_s,
          lag_max: (setting(:admin_lag_max) if setting(:admin_lag_max).positive?), statsd: statsd,
          roles: %i[web jobs streams].select { |role| @plan.role?(role) }, dashboard: dashboard }
      end

      private

      def statsd
        address = setting(:admin_statsd) or return

        { address: address.delete_prefix("udp://"), interval_s: setting(:admin_statsd_interval_s),
          tags: setting(:admin_statsd_tags) }
      end

      def dashboard
        facts = { version: VERSION, ruby: RUBY_VERSION, tag: @plan.tag, environment: @plan.environment,
                  store: (@plan.jobs.store_shown if @store) }.compact
        { **Options.document(:admin, :dashboard, method(:setting)),
          control_socket: @plan.control_socket, facts: facts, application: @plan.jobs&.application.to_s, crons: crons }
      end

      def crons
        return [] unless @store

        @plan.jobs.crons.map do |line|
          { name: line.name, class: line.class_name, schedule: line.expression, zone: line.zone, queue: line.queue }
        end
      end

      # An application can mount the dashboard without an admin endpoint.
      def setting(name) = @plan.admin ? @plan.admin[name] : Options[name].default
    end
  end
end
