# frozen_string_literal: true

require_relative "../rails/active_record_pool"
require_relative "../version"

module Chaton
  class Supervisor
    # The line that greets people in development and at a terminal: what runs, and where.
    module Banner
      # @param addresses [Array<String>] of the listening sockets
      # @param pool_size [Integer, nil] of ActiveRecord's connection pool
      # @return [String] "Chaton 0.2 · threads 1–5 (ActiveRecord's pool) · http://localhost:3000"
      def self.text(plan, addresses, pool_size)
        workers = "#{plan.workers} worker#{"s" if plan.workers > 1}" if plan.workers.positive?
        ["Chaton #{VERSION}", workers, threads(plan, pool_size), jobs(plan), streams(plan),
         *addresses.map { |one| url(one) }.uniq]
          .compact.join(" · ")
      end

      def self.threads(plan, pool_size)
        max, limited = ActiveRecordPool.threads_max(plan, pool_size)
        of_pool = " (ActiveRecord's pool)" if limited && !plan.threads_max_given?
        "threads #{[plan.threads_min, max].uniq.join("–")}#{of_pool}"
      end

      def self.jobs(plan)
        return unless plan.jobs

        store = plan.jobs.store_shown.sub("sqlite://#{plan.root}/", "sqlite ")
        "jobs: #{store}#{" (enqueued only)" unless plan.role?(:jobs)}"
      end

      def self.streams(plan) = ("streams: #{plan.streams.broker.sub("#{plan.root}/", "")}" if plan.role?(:streams))

      # Any address of this machine is reached by the name of the loopback.
      def self.url(address)
        return address unless address.start_with?("tcp://")

        address.sub("tcp", "http").sub(/0\.0\.0\.0|127\.0\.0\.1|\[::1?\]/, "localhost")
      end
      private_class_method :threads, :jobs, :streams, :url
    end
  end
end
