# frozen_string_literal: true

require "did_you_mean"
require_relative "limits"

module Chaton
  module Jobs
    # The options of a job class. Sidekiq's go into the document as they are, Chaton's become its member "chaton",
    # and others are the application's own and are kept in the document.
    module Options
      # Options of a class that sets none, as in Sidekiq.
      DEFAULTS = { "retry" => true, "queue" => "default" }.freeze
      # Options that are written under the key "chaton" ({Extra}).
      EXTRA = %w[unique_for unique_until limit expires_in deadline].freeze
      # Options for the client; they are not in the document.
      CLIENT = %w[enqueue_after_commit pool transaction].freeze
      KNOWN = (%w[queue retry dead backtrace tags retry_for retry_queue] + EXTRA + CLIENT).freeze
      # Letters in which a misspelt option may differ: in short names, and in others.
      SLIP = { short: 1, long: 2 }.freeze
      # A name of this many letters is short.
      SHORT_LETTERS_MAX = 5

      # Options of a job whose class is only a name: the application's default options of Sidekiq, if there are any.
      def self.defaults
        return DEFAULTS if !defined?(::Sidekiq) || ::Object.autoload?(:Sidekiq)

        %i[default_job_options default_worker_options].each do |name|
          return ::Sidekiq.public_send(name) if ::Sidekiq.respond_to?(name)
        end
        DEFAULTS
      end

      # @return [Hash{String=>Object}] options of all kinds that its jobs have
      def self.of(job)
        return job.declared.options if job.respond_to?(:declared)

        options = job.respond_to?(:get_sidekiq_options) ? job.get_sidekiq_options : defaults
        JobClass.active_job?(job) ? options.merge(of_active_job(job.new)) : options
      end

      # ActiveJob names queues and priorities in its own way. Stores read priorities under the key "chaton".
      def self.of_active_job(job)
        { "queue" => job.queue_name.to_s, "chaton" => ({ "priority" => job.priority } if job.priority) }.compact
      end

      # Checks the options that a class sets.
      #
      # @param owner [String] for the message
      # @raise [ArgumentError] for a wrong value, or a misspelt option
      def self.checked(given, owner)
        given = given.transform_keys(&:to_s)
        (given.keys - KNOWN).each do |key|
          meant = nearest(key) or next
          raise ArgumentError, "#{owner}: there is no option #{key}; did you mean #{meant}? (A key of your own " \
                               "for the job document must not look so much like it.)"
        end
        check_values(given, owner)
        note_transaction(given, owner) if given.key?("transaction")
        given
      end

      # @return [String, nil] the option that was probably meant
      def self.nearest(key)
        slips = key.size <= SHORT_LETTERS_MAX ? SLIP[:short] : SLIP[:long]
        KNOWN.map { |name| [DidYouMean::Levenshtein.distance(key, name), name] }
          .select { |distance, _| distance <= slips }.min&.last
      end

      # Workers check at their start whether such classes can run.
      def self.note_transaction(given, owner)
        value = given["transaction"]
        unless [true, false].include?(value)
          raise ArgumentError, "#{owner}: transaction is #{value.inspect}; it must be true or false"
        end

        Jobs.setup.with_transaction |= [owner] if value
      end

      def self.check_values(given, owner)
        wrong = lambda do |key, wanted|
          raise ArgumentError, "#{owner}: #{key} is #{given[key].inspect}; it must be #{wanted}"
        end
        wrong.call("queue", "a name") if given.key?("queue") && given["queue"].to_s.empty?
        wrong.call("tags", "an Array of Strings") if given["tags"] && !given["tags"].is_a?(Array)
        wrong.call("retry", "true, false or a number of retries") unless retry?(given["retry"])
        wrong.call("unique_until", ":start or :success") unless until?(given["unique_until"])
        Limits.read(given["limit"], owner) if given["limit"]
        %w[unique_for expires_in deadline retry_for].each do |key|
          value = given[key]
          wrong.call(key, "a time in seconds above 0") if value && !(value.respond_to?(:to_f) && value.to_f.positive?)
        end
      end

      def self.retry?(value) = [nil, true, false].include?(value) || (value.is_a?(Integer) && !value.negative?)

      def self.until?(value) = [nil, "start", "success"].include?(value&.to_s)
      private_class_method :nearest, :note_transaction, :check_values, :retry?, :until?
    end
  end
end
