# frozen_string_literal: true

require_relative "job_list"

module Chaton
  module Jobs
    # A queue and its waiting jobs, the next one first.
    class Queue < JobList
      # @param native [Native::JobsClient]
      # @return [Array<Queue>] all that ever had a job
      def self.all(native = Jobs.client.native)
        native.queues.map { |queue| new(queue[:name], native) }.sort_by(&:name)
      end

      attr_reader :name

      # @param name [String]
      # @param native [Native::JobsClient]
      def initialize(name = "default", native = Jobs.client.native)
        @name = name.to_s
        super("queue:#{@name}", native)
      end

      def size = detail(:size, 0)

      # @return [Float] age of the next job in seconds
      def latency = detail(:latency_s, 0.0)

      # @return [Boolean] whether no jobs are claimed from it
      def paused? = detail(:paused, false)

      # Stops claims from it until {#resume}.
      def pause = @native.pause(@name, true)

      def resume = @native.pause(@name, false)

      private

      def detail(key, otherwise)
        @native.queues.find { |queue| queue[:name] == @name }&.fetch(key) || otherwise
      end
    end
  end
end
