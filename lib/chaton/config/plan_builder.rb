# frozen_string_literal: true

require_relative "plan"

module Chaton
  module Config
    # Makes the plan of a draft without problems: defaults filled in, paths absolute, everything frozen.
    class PlanBuilder
      # Options that go into the plan under their own name and as they are.
      PLAIN = Options.of_plan - %i[
        bind port directory environment tag rackup workers threads preload stdout_redirect pidfile control_socket
      ]
      # Where nobody names an address.
      DEFAULT_BIND = Bind.new(scheme: "tcp", host: "0.0.0.0", port: Types::Address::PORT).freeze

      # @param draft [Draft]
      # @param root [String] where the command was typed
      # @param environment [String]
      # @param config_file [String, nil]
      def initialize(draft, root:, environment:, config_file:)
        @draft = draft
        @root = File.expand_path(draft[:directory] || ".", root)
        @environment = environment
        @config_file = config_file
      end

      # @return [Plan]
      def plan
        Plan.new(
          root: @root, environment: @environment, config_file: @config_file, tag: value(:tag) || File.basename(@root),
          binds: binds, binds_given: @draft.set?(:binds), roles: [:web].freeze, web: web, hooks: hooks,
          notes: @draft.notes.freeze,
          **paths, **crew, **PLAIN.to_h { |name| [name, value(name)] }
        )
      end

      private

      def value(name, settings = {})
        return @draft[name] if @draft.set?(name)

        Options[name].default_in(@environment, settings)
      end

      def binds
        (@draft[:binds] || [DEFAULT_BIND]).map { |bind| bind.under(@root) }.uniq(&:to_s).freeze
      end

      def web = Web.new(**Options.of_web.to_h { |name| [name, value(name)] }).freeze

      def crew
        by_role = value(:workers)
        {
          workers: by_role.values.sum,
          roles_by_worker: by_role.flat_map { |role, count| Array.new(count) { [role].freeze } }.freeze,
          preload: value(:preload, { workers: by_role }), **value(:threads).to_h
        }
      end

      def paths
        out, err, append = value(:stdout_redirect)
        {
          rackup: absolute(value(:rackup)), pidfile: absolute(value(:pidfile)),
          control_socket: absolute(value(:control_socket)),
          stdout_redirect: (out || err) && [absolute(out), absolute(err), append].freeze
        }
      end

      def absolute(path) = path && File.expand_path(path, @root).freeze

      def hooks
        moments = Hooks::ALL.to_h { |hook| [hook.name, @draft.hooks.fetch(hook.name, []).freeze] }
        { **moments, Hooks::ERROR_HANDLER => @draft.hooks.fetch(Hooks::ERROR_HANDLER, []).first }.freeze
      end
    end
  end
end
