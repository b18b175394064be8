# frozen_string_literal: true

require_relative "problem"

module Chaton
  module Config
    # Who does what: decides from the switches, `workers` and the sections of a draft which roles are on, and which
    # of them each worker has.
    #
    # - `--web` and `--jobs` choose: whoever names one gets those named and no other; `--no-web`, `--no-jobs` take
    #   one away.
    # - Without them, roles named by `workers web: 2, jobs: 1` are on.
    # - Without those, web is on, and jobs where there is a `jobs { }`.
    class Roles
      # In the order in which they are started.
      ALL = %i[web jobs].freeze
      # How problems name this source.
      ORIGIN = Origin.new("the configuration").freeze

      # @param draft [Draft] its problems and notes get more
      # @param workers [Hash{Symbol=>Integer}] by role; `every` for workers that do all
      def initialize(draft, workers)
        @draft = draft
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

      # @return [Boolean] whether there is something to know about jobs: some process runs or enqueues them
      def jobs? = on.include?(:jobs) || @draft.section?(:jobs) || @draft.set?(:store)

      # Notes what cannot be meant.
      #
      # @return [void]
      def check
        return problem("no role is left to run; add --jobs, or take --no-web away") if on.empty?

        wanted = @workers.sum { |_, count| count }.positive?
        if wanted && by_worker.empty?
          problem("--#{on.first} asks for #{on.first}, and workers names none; write workers #{on.first}: 1")
        elsif wanted && @draft.section?(:jobs) && chosen.empty? && !on.include?(:jobs)
          @draft.note(ORIGIN, "workers names none for jobs: they are enqueued, and another process has to run them " \
                              "(workers web: 2, jobs: 1, or chaton --jobs)")
        end
      end

      private

      def find_on
        roles = chosen
        roles = named if roles.empty?
        roles = [:web, *(:jobs if @draft.section?(:jobs))] if roles.empty?
        roles.reject { |role| @draft[role] == false }.freeze
      end

      def chosen = ALL.select { |role| @draft[role] }

      def named = ALL.select { |role| @workers.fetch(role, 0).positive? }

      def problem(message) = @draft.problem(ORIGIN, message)
    end
  end
end
