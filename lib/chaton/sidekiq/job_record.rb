# frozen_string_literal: true

require_relative "../jobs/clock"
require_relative "../jobs/job_record"

module Sidekiq
  # A stored job, with Sidekiq's names.
  class JobRecord < Chaton::Jobs::JobRecord
    # Classes of ActionMailer's jobs.
    MAILERS = %w[ActionMailer::DeliveryJob ActionMailer::MailDeliveryJob].freeze
    # Arguments before those of the mailer's method: mailer, method and way of delivery.
    MAILER_HEAD = 3

    # @param document [String, Hash]
    # @param queue [String, nil] instead of the document's
    # @param list [Chaton::Jobs::JobList, nil] where it is stored
    # @param entry [Array, nil] as the list's store names it
    def initialize(document, queue = nil, list: nil, entry: nil)
      @item = document if document.is_a?(Hash)
      @queue = queue
      super(list&.native, list&.place, entry || [0.0, 0, @item ? Sidekiq.dump_json(@item) : document])
    end

    alias value payload

    # @return [String, nil]
    def queue = @queue || super

    # @return [String, nil]
    def klass = item["class"]

    # @return [Array] as the document has them; of a malformed one its text
    def args = item["args"] || [payload]

    # @return [String, nil]
    def bid = item["bid"]

    # @return [Array<String>]
    def tags = item["tags"] || []

    # @return [Time, nil]
    def retried_at = time("retried_at")

    # @return [Float] seconds since it was enqueued, or made
    def latency
      since = enqueued_at || created_at
      since ? Chaton::Jobs::Clock.now_s - since.to_f : 0.0
    end

    # @return [String, nil] its class; of an ActiveJob the wrapped one, of a mail "SomeMailer#method"
    def display_class
      mailer? ? active_job_args.first(2).join("#") : job_class
    end

    # @return [Array] the arguments as that class gets them
    def display_args
      shown = args
      shown = plain(mailer? ? mailer_args : active_job_args) if item["wrapped"]
      item["encrypt"] ? [*shown[0...-1], "[encrypted data]"] : shown
    end

    private

    def active_job_args = args.first.is_a?(Hash) ? args.first["arguments"] || [] : args

    def mailer? = MAILERS.include?(item["wrapped"]) && active_job_args.size >= MAILER_HEAD

    # The newer class passes one Hash.
    def mailer_args
      given = active_job_args.drop(MAILER_HEAD)
      item["wrapped"] == MAILERS.last ? given.first.values_at("params", "args") : given
    end

    # Arguments without what ActiveJob adds when it serializes them.
    def plain(value)
      case value
      when Array then value.map { |one| plain(one) }
      when Hash
        value["_aj_globalid"] || value.reject { |key, _| key.start_with?("_aj_") }.transform_values { |one| plain(one) }
      else value
      end
    end
  end

  # A job of a set.
  class SortedEntry < JobRecord
    # @return [JobSet]
    attr_reader :parent

    # @param parent [JobSet]
    # @param score [Float] its time
    # @param document [String]
    # @param entry [Array, nil] as the set's store names it
    def initialize(parent, score, document, entry = nil)
      @parent = parent
      super(document, list: parent, entry: entry || [score.to_f, 0, document])
    end

    # @return [Float] when it is due or died, in seconds since 1970
    def score = @entry[0]

    # @return [Time]
    def at = Time.at(score).utc

    def error? = !item["error_class"].nil?

    alias add_to_queue retry

    # Moves it to the dead set.
    #
    # @param notify_failure [Boolean] whether death handlers are called
    # @param ex [Exception, nil] for them
    # @return [Boolean] false when it was gone
    def kill(notify_failure: true, ex: nil)
      super().tap { |there| DeadSet.notify(value, ex) if there && notify_failure }
    end
  end
end
