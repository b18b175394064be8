# frozen_string_literal: true

require_relative "declaration"
require_relative "extra"

module Chaton
  module Jobs
    # An entry of `cron` in the configuration, as the store knows it. `last_at` is the last tick that was enqueued,
    # nil when there was none; `next_at` is the next one, nil when there is none. `schedule` is the expression.
    #
    # @see Jobs.cron
    CronStatus = Struct.new(:name, :class_name, :schedule, :zone, :queue, :last_at, :next_at, keyword_init: true)

    # The document of a cron job. The engine enqueues the jobs itself.
    module CronEntry
      # Stands for the jid of a tick, which the engine makes.
      NO_JID = ""

      # @param job [Class, String] a String when the class is not loaded yet
      # @param queue [String, Symbol, nil] instead of the class's
      # @return [Array(String, String, String, Float)] the queue; the document's JSON without jid, times, the member
      #   "chaton" and the closing brace; this member of a job that is enqueued at the time 0, and the seconds of its
      #   lock, both nil where there are none
      # @raise [ArgumentError] for arguments that do not come back equal from JSON, or a wrong limit
      def self.template(job, args: [], queue: nil)
        args = Array(args)
        Arguments.check(job.to_s, args)
        item = declaration(job, queue).item(args).merge("jid" => NO_JID)
        _, _, lock_s = Extra.new(item, 0.0).apply
        chaton = item.delete("chaton")
        head = JSON.generate(item.except("jid"), max_nesting: false).chop
        [item["queue"], head, chaton && JSON.generate(chaton, max_nesting: false), lock_s]
      end

      # @return [Array<CronStatus>] see {Jobs.cron}
      def self.all(settings, native)
        lines = settings.crons
        ticks = native.crons(settings.application, lines.map { |line| [line.name, line.expression, line.zone] })
        lines.zip(ticks).map do |line, (last_s, next_s)|
          CronStatus.new(name: line.name, class_name: line.class_name, schedule: line.expression, zone: line.zone,
                         queue: line.queue, last_at: last_s && Time.at(last_s), next_at: next_s && Time.at(next_s))
        end
      end

      # Enqueues a job of an entry now, through client middleware.
      #
      # @return [String, nil] its jid; nil when middleware stopped it or its lock is held
      # @raise [StoreError]
      def self.enqueue(line) = Jobs.client.one(declaration(line.class_name, line.queue), Array(line.args))

      def self.declaration(job, queue)
        job = loaded(job)
        options = Options.of(job)
        Declaration.new(job, queue ? options.merge("queue" => queue.to_s) : options)
      end

      # A class that cannot be loaded here keeps its name; its jobs fail where they run.
      def self.loaded(job)
        job.is_a?(String) ? JobClass.constant(job) : job
      rescue NameError, LoadError
        job
      end
      private_class_method :declaration, :loaded
    end
  end
end
