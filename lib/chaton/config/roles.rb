# frozen_string_literal: true

require_relative "problem"

module Chaton
  module Config
    # Decides from the switches, `workers` and the sections of the file which roles are on, and which of them each
    # worker has.
    #
    # - With `--web`, `--jobs` or `--streams` only the named roles are on; `--no-web`, `--no-jobs` and `--no-streams`
    #   switch one off.
    # - Without them, roles named by `workers web: 2, jobs: 1, streams: 1` are on.
    # - Otherwise web is on, jobs if there is a `jobs { }`, and streams if a topic of `streams { }` has a consumer.
    class Roles
      # In the order in which they start.
      ALL = %i[web jobs streams].freeze
      # How problems name this source.
      ORIGIN = Origin.new("the configuration").freeze
      # The consequence for a role's work if no worker has the role.
      ELSEWHERE = { jobs: "jobs are only enqueued, and another process has to run them",
                    streams: "records are only written, and another process has to read them" }.freeze

      # @param sources [Sources] its problems and notes get more
      # @param workers [Hash{Symbol=>Integer}] by role; `every` for workers with all roles
      def initialize(sources, workers)
        @sources = sources
        @workers = workers
      end

      # @return [Array<Symbol>] roles that are on
      def on = @on ||= find_on

      # @return [Array<Array<Symbol>>] for each worker its roles
      def by_worker
        @by_worker ||= @workers.flat_map do |role, count|
          roles = role == :every ? on : on & [role]
          roles.empty? ? [] : Array.new(count) { roles }
        end.freeze
      end

      # @return [Boolean] whether jobs are run or enqueued
      def jobs? = on.include?(:jobs) || @sources.section?(:jobs) || @sources.set?(:store)

      # @return [Boolean] whether streams are read or written
      def streams? = on.include?(:streams) || @sources.section?(:streams) || @sources.set?(:broker)

      # Reports combinations that cannot be meant.
      def check
        return problem("no role is left to run; add --jobs, or take --no-web away") if on.empty?

        check_consumers
        wanted = @workers.sum { |_, count| count }.positive?
        return unless wanted

        if by_worker.empty?
          problem("--#{on.first} asks for #{on.first}, and workers names none; write workers #{on.first}: 1")
        elsif chosen.empty?
          ELSEWHERE.each_key { |role| note_elsewhere(role) if wanted?(role) && !on.include?(role) }
        end
      end

      private

      def find_on
        roles = chosen
        roles = named if roles.empty?
        roles = ALL.select { |role| wanted?(role) } if roles.empty?
        roles.reject { |role| @sources[role] == false }.freeze
      end

      # Whether the file asks for the role without naming it in `workers`.
      def wanted?(role)
        case role
        when :web then true
        when :jobs then @sources.section?(:jobs)
        when :streams then consumers?
        end
      end

      def consumers? = @sources.topics.any?(&:consumer)

      def chosen = ALL.select { |role| @sources[role] }

      def named = ALL.select { |role| @workers.fetch(role, 0).positive? }

      def check_consumers
        return if consumers? || !on.include?(:streams)

        problem("the role streams is on, and no topic has a consumer; write streams { topic \"events\", " \
                "EventsConsumer }")
      end

      def note_elsewhere(role)
        @sources.note(ORIGIN, "workers names none for #{role}: #{ELSEWHERE.fetch(role)} (workers web: 2, #{role}: 1, " \
                              "or chaton --#{role})")
      end

      def problem(message) = @sources.problem(ORIGIN, message)
    end
  end
end
