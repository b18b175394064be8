# frozen_string_literal: true

require_relative "../../jobs/job_class"
require_relative "../../jobs/job_files"
require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs enqueue CLASS [ARGS]: the application's job files are loaded, so that the options of the class and
      # client middleware apply.
      class Enqueue < Command
        def self.own_options = %i[queue in]

        def run
          name, text = positional("CLASS", more: 1)
          raise ConfigError, "#{name.inspect} is not a name of a class" unless name.match?(/\A[A-Z]\w*(::[A-Z]\w*)*\z/)

          arguments = args(text)
          declared = declaration(loaded(name))
          jid = ::Chaton::Jobs::Client.new(client, format: plan.jobs.store_settings.fetch(:format))
            .one(declared, arguments, at)
          raise Chaton::Error, "not enqueued: client middleware stopped it, or an equal job exists" unless jid

          answer({ jid: jid, queue: declared.queue }, "job #{jid} is enqueued in #{declared.queue}")
        rescue ArgumentError => e
          raise ConfigError, e.message
        end

        private

        def creates_store? = true

        # @return [Class, String] the name when only other processes have the class
        def loaded(name)
          ::Chaton::Jobs::JobFiles.new(plan, nil).load
          klass = ::Chaton::Jobs::JobClass.constant(name)
          return klass if klass.is_a?(Class) && klass.method_defined?(:perform)

          raise ConfigError, "#{name} is not a job class: it has no method perform"
        rescue ::Chaton::Jobs::UnknownClass => e
          @err.puts "warning: #{e.message}; the job is enqueued with default options"
          name
        end

        def declaration(job)
          options = ::Chaton::Jobs::Options.of(job)
          options = options.merge("queue" => value(:queue)) if value(:queue)
          ::Chaton::Jobs::Declaration.new(job, options)
        end

        def at
          delay_s = value(:in)
          delay_s.positive? ? Time.now.to_f + delay_s : nil
        end

        def args(text)
          found = text ? JSON.parse(text) : []
          return found if found.is_a?(Array)

          raise ConfigError, "the arguments must be a JSON array, not #{text}; write '[#{text}]'"
        rescue JSON::ParserError
          raise ConfigError, "#{text} is not JSON; write the arguments as an array: '[7, \"x\"]'"
        end
      end
    end
  end
end
