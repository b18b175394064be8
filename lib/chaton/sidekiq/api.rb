# frozen_string_literal: true

require_relative "../jobs/clock"
require_relative "../jobs/job_set"
require_relative "../jobs/process_set"
require_relative "../jobs/queue"
require_relative "../jobs/stats"
require_relative "job_record"
require_relative "processes"
require_relative "stats"

module Sidekiq
  # A queue and its waiting jobs, the next one first.
  class Queue < Chaton::Jobs::Queue
    private

    def record(entry) = JobRecord.new(entry[2], @name, list: self, entry: entry)
  end

  # What Sidekiq's sets have beside the methods of Chaton's.
  module JobSet
    # As in Sidekiq, the last time comes first.
    #
    # @yieldparam job [SortedEntry]
    # @return [Enumerator, self]
    def each(&block)
      return enum_for(:each) { size } unless block

      # From the end, so that jobs which are removed meanwhile move no others.
      first = size
      while first.positive?
        count = [Chaton::Jobs::JobList::PAGE, first].min
        first -= count
        page(first, count).reverse_each(&block)
      end
      self
    end

    # @param score [Float, Time, Range] a time or several, in seconds since 1970
    # @param jid [String, nil]
    # @return [Array<SortedEntry>]
    def fetch(score, jid = nil)
      times = score.is_a?(Range) ? Range.new(score.begin&.to_f, score.end&.to_f) : [score.to_f]
      select { |job| times.include?(job.score) && (jid.nil? || job.jid == jid) }
    end

    # @return [Boolean]
    def delete(score, jid) = fetch(score, jid).count(&:delete).positive?
    alias delete_by_jid delete

    # @param pattern [String] a part of the document, or with `*` a pattern of all of it
    # @param count [Object] ignored
    # @yieldparam job [SortedEntry]
    # @return [Enumerator] without a block
    def scan(pattern, count = nil)
      return enum_for(:scan, pattern, count) unless block_given?

      pattern = "*#{pattern}*" unless pattern.include?("*")
      each { |job| yield job if File.fnmatch?(pattern, job.value, File::FNM_DOTMATCH) }
    end

    # Adds a job.
    #
    # @param timestamp [Time, Numeric]
    # @param job [Hash{String=>Object}] its document
    def schedule(timestamp, job) = native.add(place, timestamp.to_f, Sidekiq.dump_json(job))

    # Moves all jobs to the dead set.
    #
    # @param notify_failure [Boolean] whether death handlers are called
    # @param ex [Exception, nil] for them
    # @return [Integer] how many
    def kill_all(notify_failure: false, ex: nil)
      move { |job| job.kill(notify_failure: notify_failure, ex: ex) }
    end

    private

    def record(entry) = SortedEntry.new(self, entry[0], entry[2], entry)
  end

  # Jobs that are not due yet.
  class ScheduledSet < Chaton::Jobs::ScheduledSet
    include JobSet
  end

  # Failed jobs that will be retried.
  class RetrySet < Chaton::Jobs::RetrySet
    include JobSet
  end

  # Jobs that failed for good.
  class DeadSet < Chaton::Jobs::DeadSet
    include JobSet

    # The store lists the last one first.
    def each(&block) = Chaton::Jobs::JobList.instance_method(:each).bind_call(self, &block)

    # Adds a job.
    #
    # @param message [String] its document
    # @param options [Hash] `notify_failure: false` calls no death handlers, `ex:` is the error for them
    # @return [true]
    def kill(message, options = {})
      native.add(place, Chaton::Jobs::Clock.now_s, message)
      DeadSet.notify(message, options[:ex]) unless options[:notify_failure] == false
      true
    end

    # Calls the death handlers.
    #
    # @private
    def self.notify(message, error = nil)
      error ||= RuntimeError.new("Job killed by API").tap { |made| made.set_backtrace(caller) }
      item = Sidekiq.load_json(message)
      Sidekiq.death_handlers.each { |handler| handler.call(item, error) }
    end
  end
end
