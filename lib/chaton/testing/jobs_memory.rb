# frozen_string_literal: true

require "json"
require "securerandom"
require_relative "../jobs"
require_relative "../job"

module Chaton
  module Testing
    # Replaces the native client in tests with lists of documents. Locks and limits have no effect; a batch only
    # counts its jobs. Methods without a comment are as in Native::JobsClient.
    # @private
    class JobsMemory
      # @return [Hash{String=>Array<Hash>}] documents of waiting jobs by their class, and by their queue. A list stays
      #   the same object while jobs come and go, and a test may change it; a job waits while its class lists it.
      attr_reader :by_class, :by_queue

      def initialize
        @lock = Mutex.new
        @by_class = Hash.new { |lists, name| lists[name] = [] }
        @by_queue = Hash.new { |lists, name| lists[name] = [] }
        # Numbers of documents in the order in which they were enqueued.
        @numbers = ObjectSpace::WeakMap.new
        @count = 0
        @batches = {}
        @hashes = {}
      end

      def push_args(queue, head, lists, at, jids = nil)
        class_name = JSON.parse("#{head}}")["class"]
        lists.each { |args| Jobs::Arguments.check(class_name, args) }
        lists.each_with_index.map do |args, index|
          jid = jids ? jids[index] : SecureRandom.hex(Jobs::Client::JID_BYTES)
          tail = JSON.generate({ "args" => args, "jid" => jid, "created_at" => stamp }, max_nesting: false)
          store("#{head},#{tail[1..]}", queue, at.is_a?(Array) ? at[index] : at)
          jid
        end
      end

      def push(queue, payload, at, _lock, bid)
        @batches[bid][:total] += 1 if @batches.key?(bid)
        store(payload, queue, at)
        nil
      end

      def finish_pushes(_time_s) = nil

      def push_many(jobs) = jobs.map { |job| push(*job) }

      # @return [Array<Hash>] documents in their order; of a scheduled job with its time in `at`
      def jobs = @lock.synchronize { @by_class.values.flatten(1).sort_by { |item| number(item) } }

      # @param name [String, nil] of a class; nil: all
      def clear(name = nil)
        @lock.synchronize do
          (name ? [name] : @by_class.keys).each { |one| @by_class[one].dup.each { |item| delete(item) } }
          @by_queue.each_value(&:clear) unless name
        end
      end

      # @param name [String, nil] of a class; nil: all
      def drain(name = nil)
        nil while run_first(name)
      end

      # @param name [String, nil] of a class; nil: any
      # @return [Boolean] whether there was one
      def run_first(name = nil)
        item = @lock.synchronize do
          firsts = name ? [@by_class[name].first] : @by_class.values.map(&:first)
          firsts.compact.min_by { |one| number(one) }&.tap { |one| delete(one) }
        end
        Jobs::Inline.perform(item.except("at")) if item
        !item.nil?
      end

      def batch_open(bid, parent, description, _callbacks, _ttl_s, _owner)
        @batches[bid] = { bid: bid, parent: parent, description: description, created_at: Jobs::Clock.now_s, total: 0,
                          pending: 0, failures: 0, failed_jids: [], children_pending: 0, complete: false,
                          success: false, dead: false }
      end

      def batch_close(bid) = @batches.key?(bid)

      def batch_remove(bid) = !@batches.delete(bid).nil?

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

      def stamp = Jobs::Clock.stamp(Testing.client.format)

      def store(payload, queue, at)
        item = JSON.parse(payload, max_nesting: false).merge("queue" => queue)
        return Jobs::Inline.perform(item) if Testing.inline?

        at ? item["at"] = at : item["enqueued_at"] ||= stamp
        @lock.synchronize do
          @numbers[item] = @count += 1
          @by_class[item["class"]] << item
          @by_queue[queue] << item
        end
      end

      # A document that the test itself has put into a list comes first.
      def number(item) = @numbers[item] || 0

      def delete(item)
        [@by_class[item["class"]], @by_queue[item["queue"]]].each do |list|
          index = list.index { |one| one.equal?(item) }
          list.delete_at(index) if index
        end
      end
    end
  end
end
