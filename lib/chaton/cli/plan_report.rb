# frozen_string_literal: true

require_relative "../config/options"

module Chaton
  class CLI
    # A plan for people to read.
    class PlanReport
      # @param plan [Config::Plan]
      def initialize(plan)
        @plan = plan
      end

      # @return [String]
      def to_s
        groups = Config::Options::GROUPS.map { |group, title| [title, rows(group)] }
        width = groups.flat_map { |_, rows| rows.map { |name, _| name.length } }.max
        text = groups.reject { |_, rows| rows.empty? }.map do |title, rows|
          "#{title}\n#{rows.map { |name, value| "  #{name.ljust(width)}  #{value}\n" }.join}"
        end
        [*text, *notes].join("\n")
      end

      private

      def rows(group)
        return server if group == :server

        options = Config::Options::ALL.select { |option| option.group == group }
        options.map { |option| [option.name.to_s, shown(option)] }
      end

      def server
        [
          ["directory", @plan.root], ["configuration", @plan.config_file || "none"], ["application", @plan.rackup],
          ["environment", @plan.environment], ["listen", @plan.binds.join(" ")], ["tag", @plan.tag]
        ]
      end

      def shown(option)
        case option.name
        when :workers then @plan.workers.zero? ? "0 (one process)" : @plan.workers.to_s
        when :preload then option.type.show(@plan.preload?)
        when :threads then "#{@plan.threads_min}:#{@plan.threads_max}#{" (default)" unless @plan.threads_max_given?}"
        else option.type.show(web?(option) ? @plan.web[option.name] : @plan.public_send(option.name))
        end
      end

      def web?(option) = option.scope == :web && !option.outside

      def notes
        @plan.notes.empty? ? [] : ["Notes\n#{@plan.notes.map { |note| "  #{note}\n" }.join}"]
      end
    end
  end
end
