# frozen_string_literal: true

require "json"
require "securerandom"

# Stands for Native::JobsClient: the same calls, kept in memory.
class FakeClient
  Row = Struct.new(:queue, :payload, :at, :lock, :bid) do
    def item = JSON.parse(payload)
  end

  attr_reader :rows, :hashes, :batches, :calls, :cancels

  def initialize
    @rows = []
    @hashes = {}
    @batches = {}
    @calls = []
    @cancels = []
    @locks = {}
  end

  def push_args(queue, head, lists, at, jids = nil)
    @calls << :push_args
    lists.each_with_index.map do |args, index|
      Chaton::Jobs::Arguments.check(JSON.parse("#{head}}")["class"], args)
      jid = jids ? jids[index] : SecureRandom.hex(12)
      due = at.is_a?(Array) ? at[index] : at
      tail = { "args" => args, "jid" => jid, "created_at" => 1.5 }
      tail["enqueued_at"] = 1.5 unless due
      @rows << Row.new(queue, "#{head},#{JSON.generate(tail)[1..]}", due)
      jid
    end
  end

  def push(queue, payload, at, lock, bid)
    @calls << :push
    if lock
      key, jid, = lock
      return @locks[key] if @locks[key]
      @locks[key] = jid
    end
    @rows << Row.new(queue, payload, at, lock, bid)
    nil
  end

  def push_many(jobs)
    @calls << :push_many
    jobs.map { |job| push(*job) }
  end

  # No connection of the application is to it.
  def own_database = nil

  def unlock(key, jid) = @locks.delete_if { |name, holder| name == key && holder == jid }

  def items = rows.map(&:item)

  def load(key) = @hashes[key] || {}
  def save(key, hash, _ttl_s) = @hashes[key] = (@hashes[key] || {}).merge(hash)
  def remove_hash(key) = @hashes.delete(key)
  def cancel(jid) = @cancels << jid

  def batch_open(bid, parent, description, callbacks, ttl_s, _owner)
    @batches[bid] = { parent: parent, description: description, callbacks: callbacks, ttl_s: ttl_s, closed: false }
  end

  def batch_close(bid)
    @batches[bid][:closed] = true if @batches.key?(bid)
  end

  def batch_remove(bid) = !@batches.delete(bid).nil?

  def batch(bid)
    return unless @batches[bid]

    { bid: bid, description: @batches[bid][:description], parent: @batches[bid][:parent], created_at: 1.5,
      total: rows.count { |row| row.bid == bid }, pending: 1, failures: 0, failed_jids: [], children_pending: 0,
      complete: false, success: false, dead: false }
  end
end

# Stands for Native::Job.
class FakeJob
  attr_reader :payload, :outcome, :outcomes

  # @param waited [Boolean] whether it has waited for its class for too long
  def initialize(item, due: false, cancelled: false, waited: false)
    @waited = waited
    @payload = item.is_a?(String) ? item : JSON.generate(item)
    @item = JSON.parse(@payload)
    @due = due
    @cancelled = cancelled
    @outcomes = []
  end

  def class_name = @item["class"]
  def args = @item["args"]
  def jid = @item["jid"]
  def queue = @item["queue"]
  def bid = @item["bid"]
  def enqueued_at = @item["enqueued_at"]
  def due? = @due
  def cancelled? = @cancelled
  def deadline_over? = false
  def open? = @outcome.nil?
  def display_class = class_name
  def report_failure = true
  def describe = "#{class_name} #{jid}"

  def ack = finish(:ack)
  def retry(at, payload) = finish(:retry, at, payload)
  def dead(payload) = finish(:dead, payload)
  def discard = finish(:discard)
  def reschedule(at) = finish(:reschedule, at)
  def requeue = finish(:requeue)

  def put_back
    finish(:put_back) unless @waited
    !@waited
  end

  # The document of its outcome.
  def written = JSON.parse(@outcomes.first.last)

  private

  def finish(*outcome)
    raise Chaton::ClosedError, "finished twice" if @outcome

    @outcomes << outcome
    @outcome = outcome.first
    nil
  end
end
