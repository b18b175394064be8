# frozen_string_literal: true

require_relative "../config/options"
require_relative "../memory/launch"

module Chaton
  class CLI
    # Prints a plan for people.
    class PlanReport
      # @param defaults [Config::Plan, nil] settings with the values of this plan are left out
      def initialize(plan, defaults: nil)
        @plan = plan
        @defaults = defaults && PlanReport.new(defaults)
        @left_out = 0
      end

      def to_s
        groups = Config::Options::GROUPS.map { |group, title| [title, changed(group)] }
        width = groups.flat_map { |_, rows| rows.map { |name, _| name.length } }.max
        text = groups.reject { |_, rows| rows.empty? }.map do |title, rows|
          "#{title}\n#{rows.map { |name, value| "  #{name.ljust(width)}  #{value}\n" }.join}"
        end
        [*notes, *text, *("#{@left_out} settings have their default; --all shows them.\n" if @defaults)].join("\n")
      end

      # @return [Array<Array(String, String)>] name and value of each setting
      def rows(group)
        return server if group == :server

        options = Config::Options::EVERYWHERE.select { |option| option.group == group }
        case options.first.scope
        when :admin then return [] unless @plan.admin
        when :traces then return [] unless @plan.traces
        when :jobs then return @plan.jobs ? jobs(options) : []
        when :streams, :topic then return @plan.streams ? StreamsRows.of(@plan, group, options) : []
        end

        options.map { |option| [option.written.to_s, shown(option)] }
      end

      private

      def changed(group)
        rows = rows(group)
        return rows if @defaults.nil? || group == :server

        (rows - @defaults.rows(group)).tap { |some| @left_out += rows.size - some.size }
      end

      # Each periodic job has its own line.
      def jobs(options)
        options.flat_map do |option|
          next [[option.written.to_s, of_jobs(option)]] unless option.name == :cron

          lines = @plan.jobs.crons.map { |line| ["cron", line.to_s] }
          lines.empty? ? [%w[cron none]] : lines
        end
      end

      def of_jobs(option)
        jobs = @plan.jobs
        case option.name
        when :queues then Config::QueueSelection.new(jobs.mode, jobs.queues).to_s
        when :store then jobs.store_shown
        when :jobs_threads then jobs.threads&.to_s || "as outside"
        when :jobs_shutdown_timeout_s then (jobs.shutdown_timeout_s || @plan.shutdown_timeout_s).to_s
        when :sidekiq_file then jobs.sidekiq_file || "none"
        else option.type.show(option.engine == %i[jobs store] ? jobs.store_settings[option.written] : jobs[option.name])
        end
      end

      def server
        [
          ["directory", @plan.root], ["configuration", @plan.config_file || "none"],
          ["application", @plan.role?(:web) ? @plan.rackup : "none"],
          ["environment", @plan.environment], ["listen", listen], ["tag", @plan.tag], ["roles", roles],
          *([["believed", @plan.believed_peers.to_s]] if @plan.role?(:web)),
          *@plan.services.map { |line| ["service", line.to_s] }
        ]
      end

      def listen = @plan.binds.empty? ? "nowhere" : @plan.binds.join(" ")

      # "web+jobs", or "2 web, 1 jobs".
      def roles
        return @plan.roles.join("+") if @plan.roles_by_worker.uniq.size < 2

        @plan.roles_by_worker.tally.map { |roles, count| "#{count} #{roles.join("+")}" }.join(", ")
      end

      def shown(option)
        case option.name
        when :workers then @plan.workers.zero? ? "0 (one process)" : @plan.workers.to_s
        when :preload then option.type.show(@plan.preload?)
        when :threads then "#{@plan.threads_min}:#{@plan.threads_max}#{" (default)" unless @plan.threads_max_given?}"
        when :traces_service_name then @plan.traces.traces_service_name || @plan.tag
        when :admin_bind then @plan.admin.admin_bind.join(" ")
        else option.type.show(holder(option).public_send(option.name))
        end
      end

      # The object with the option's value.
      def holder(option)
        case option.scope
        when :web then @plan.web
        when :memory then @plan.memory
        when :live then @plan.live
        when :admin then @plan.admin
        when :traces then @plan.traces
        else @plan
        end
      end

      def notes
        @plan.notes.empty? ? [] : ["Notes\n#{@plan.notes.map { |note| "  #{note}\n" }.join}"]
      end
    end

    # The rows of streams in a {PlanReport}.
    class StreamsRows
      # Keywords of a topic that are shown otherwise, or not here.
      ELSEWHERE = %i[group deserializer partitions replication settings].freeze

      # @param group [Symbol] of options
      # @param options [Array<Config::Option>] of that group
      # @return [Array<Array(String, String)>] names and values
      def self.of(plan, group, options)
        rows = new(plan)
        group == :topic ? rows.topics : options.map { |option| [option.written.to_s, rows.shown(option)] }
      end

      def initialize(plan)
        @plan = plan
        @streams = plan.streams
      end

      # @return [Array<Array(String, String)>] a line for each consumer, and each topic without one
      def topics
        read = @streams.routes.map do |route|
          given = route.given.except(*ELSEWHERE)
          facts = ["group #{route.group}",
                   *given.map { |key, value| "#{key} #{Config::Options[:"topic_#{key}"].type.show(value)}" }]
          ["topic #{route.topic}", "#{route.consumer}, #{facts.join(", ")}"]
        end
        names = @streams.routes.map(&:topic)
        rest = @streams.topics.reject { |topic| names.include?(topic.name) }
        [*read, *rest.map { |topic| ["topic #{topic.name}", "no consumer"] }]
      end

      def shown(option)
        case option.name
        when :broker then @streams.broker
        when :streams_threads then @streams.threads&.to_s || "as outside"
        when :streams_shutdown_timeout_s then (@streams.shutdown_timeout_s || @plan.shutdown_timeout_s).to_s
        when :mechanism then @streams.options[:mechanism] || option.default_text
        else option.type.show(@streams.options.fetch(option.name))
        end
      end
    end

    # Prints with which allocator and heap settings a server would start, and why; and why no thread is bound to a core.
    class MemoryReport
      def initialize(plan, launch_settings)
        @plan = plan
        @launch_settings = launch_settings
      end

      def to_s = "\nAt the start\n#{lines.map { |line| "  #{line}\n" }.join}"

      private

      def lines
        reason = Memory::Launch.refusal(@plan)
        reason ? ["allocator and heap sizes are unchanged: #{reason}"] : [*allocator, *heap, *cores]
      end

      def allocator = [@launch_settings.allocator.to_s, *set { |name| !name.match?(Memory::LaunchSettings::HEAP) }]

      def heap
        settings = @launch_settings
        from = settings.entry ? "sized by the last start, #{settings.age} ago" : settings.problem || "first start"
        kept = settings.left_alone
        ["heap: #{from}", *settings.heap.why.map { |why| "  #{why}" },
         *set { |name| name.match?(Memory::LaunchSettings::HEAP) },
         *("  left as you set them: #{kept.join(", ")}" unless kept.empty?)]
      end

      def cores
        refusal = CpuAffinity.refusal if @plan.cpu_affinity
        refusal ? ["cpu_affinity has no effect: #{refusal}"] : []
      end

      def set(&wanted)
        @launch_settings.variables.select { |name, _| wanted.call(name) }.map { |name, value| "  #{name}=#{value}" }
      end
    end
  end
end
