# frozen_string_literal: true

require "json"
require "securerandom"
require_relative "../jobs"
require_relative "../job"

module Chaton
  module Testing
    # Replaces the native client in tests with a list of documents. Locks and limits have no effect; a batch only
    # counts its jobs. Methods without a comment are as in Native::JobsClient.
    # @private
    class JobsMemory
      # @return [Boolean] whether jobs run when they are enqueued
      attr_accessor :inline

      def initialize
        @lock = Mutex.new
        @jobs = []
        @batches = {}
        @hashes = {}
      end

      def push_args(queue, head, lists, at, jids = nil)
        class_name = JSON.parse("#{head}}")["class"]
        lists.each { |args| Jobs::Arguments.check(class_name, args) }
        lists.each_with_index.map do |args, index|
          jid = jids ? jids[index] : SecureRandom.hex(Jobs::Client::JID_BYTES)
          tail = JSON.generate({ "args" => args, "jid" => jid, "created_at" => Jobs::Clock.now_s }, max_nesting: false)
          store("#{head},#{tail[1..]}", queue, at.is_a?(Array) ? at[index] : at)
          jid
        end
      end

      def push(queue, payload, at, _lock, bid)
        @batches[bid][:total] += 1 if @batches.key?(bid)
        store(payload, queue, at)
        nil
      end

      def finish_pushes = nil

      def push_many(jobs) = jobs.map { |job| push(*job) }

      # @return [Array<Hash>] documents; of a scheduled job with its time in `at`
      def jobs = @lock.synchronize { @jobs.dup }

      # @param name [String] of a class
      def jobs_of(name) = jobs.select { |item| item["class"] == name }

      # @param name [String, nil] of a class; nil: all
      def clear(name = nil)
        @lock.synchronize { @jobs.reject! { |item| name.nil? || item["class"] == name } }
      end

      # @param name [String, nil] of a class; nil: all
      def drain(name = nil)
        nil while run_first(name)
      end

      # @param name [String, nil] of a class; nil: any
      # @return [Boolean] whether there was one
      def run_first(name = nil)
        item = @lock.synchronize do
          index = @jobs.index { |one| name.nil? || one["class"] == name }
          index && @jobs.delete_at(index)
        end
        Jobs::Inline.perform(item.except("at")) if item
        !item.nil?
      end

      def batch_open(bid, parent, description, _callbacks, _ttl_s)
        @batches[bid] = { bid: bid, parent: parent, description: description, created_at: Jobs::Clock.now_s, total: 0,
                          pending: 0, failures: 0, failed_jids: [], children_pending: 0, complete: false,
                          success: false, dead: false }
      end

      def batch_close(_bid) = nil

      def batch(bid) = @batches[bid]

      def unlock(_key, _jid) = nil

      def load(key) = @hashes.fetch(key, {})

      def save(key, fields, _ttl_s)
        @hashes[key] = load(key).merge(fields)
        nil
      end

      def remove_hash(key)
        @hashes.delete(key)
        nil
      end

      private

      def store(payload, queue, at)
        item = JSON.parse(payload, max_nesting: false).merge("queue" => queue)
        return Jobs::Inline.perform(item) if inline

        item["at"] = at if at
        @lock.synchronize { @jobs << item }
      end
    end
  end
end
