# frozen_string_literal: true

module Chaton
  module Telemetry
    # What a pool thread runs now, so that each line that it logs can name the request, the job or the batch. The thread
    # keeps one and sets its work: what names it is only asked for when a line is written.
    class RunningWork
      KEY = :chaton_running_work
      # Characters of a client's request id, as many as Rails takes.
      REQUEST_ID_MAX = 255
      private_constant :KEY, :REQUEST_ID_MAX

      # @return [RunningWork] of the calling thread from now on
      def self.begin = new.tap { |one| Thread.current.thread_variable_set(KEY, one) }

      # @return [RunningWork, nil] nil outside of the pool
      def self.of(thread) = thread.thread_variable_get(KEY)

      # @return [Hash{Symbol=>String}] what names the work of the calling thread: `request_id`, or `class` and `jid`, or
      #   `batch`; empty outside of work
      def self.context = of(Thread.current)&.context || {}

      attr_accessor :work
      # @return [Exception, nil] with which it failed
      attr_accessor :error

      def context
        work = @work
        return {} unless work.respond_to?(:describe)
        return { request_id: request_id(work) } if work.respond_to?(:request_id)

        work.respond_to?(:jid) ? { class: work.display_class, jid: work.jid } : { batch: work.describe }
      end

      private

      # Rails makes one where the client sent none.
      def request_id(request)
        env = request.built_env or return request.request_id

        named = env["action_dispatch.request_id"] || env["HTTP_X_REQUEST_ID"]
        named.nil? || named.empty? ? request.request_id : named[0, REQUEST_ID_MAX]
      end
    end
  end
end
