# frozen_string_literal: true

require_relative "job_list"

module Chaton
  module Jobs
    # A queue and the jobs that wait in it, the next one first.
    class Queue < JobList
      # @param native [Native::JobsClient]
      # @return [Array<Queue>] all that ever had a job
      def self.all(native = Jobs.client.native)
        native.queues.map { |queue| new(queue[:name], native) }.sort_by(&:name)
      end

      # @return [String]
      attr_reader :name

      # @param name [String]
      # @param native [Native::JobsClient]
      def initialize(name = "default", native = Jobs.client.native)
        @name = name.to_s
        super("queue:#{@name}", native)
      end

      # @return [Integer]
      def size = fact(:size, 0)

      # @return [Float] age of the next job in seconds
      def latency = fact(:latency_s, 0.0)

      # @return [Boolean] whether it gives no jobs
      def paused? = fact(:paused, false)

      # Gives no jobs until {#resume}.
      #
      # @return [void]
      def pause = @native.pause(@name, true)

      # @return [void]
      def resume = @native.pause(@name, false)

      private

      def fact(key, otherwise)
        @native.queues.find { |queue| queue[:name] == @name }&.fetch(key) || otherwise
      end
    end
  end
end
