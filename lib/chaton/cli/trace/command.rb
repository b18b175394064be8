# frozen_string_literal: true

require_relative "../../control"
require_relative "../remote"
require_relative "mailbox"

module Chaton
  class CLI
    module Trace
      # What subcommands have in common: workers are asked through the server, and answer by themselves.
      class Command < Remote
        # An option of subcommands; where the configuration has it too, so are its rule and its default.
        #
        # @param type [#cast]
        def self.own(name, type, says, **rest)
          Config::Option.new(name: name, group: :memory, type: type, says: says, default_text: "as configured",
                             flags: ["--#{name.to_s.tr("_", "-")}"], **rest)
        end
        private_class_method :own

        # Option => words it takes.
        CHOICES = { format: %i[text collapsed pprof speedscope html], by: %i[live allocated freed] }.freeze
        # By name.
        OWN = {
          worker: own(:worker, Config::Types::Number.new(0..100_000), "Only this one; `chaton status` has the numbers.",
                      placeholder: "N", default_text: "all"),
          every: own(:every, Config::Options[:trace_every].type, "Of so many objects one is looked at.",
                     placeholder: "N"),
          duty: own(:duty, Config::Options[:trace_duty].type, "The share of the time in which it is done at all.",
                    placeholder: "SHARE"),
          window_ms: own(:window_ms, Config::Options[:trace_window_ms].type, "How long it is on at a stretch.",
                         placeholder: "MS"),
          format: own(:format, Config::Types::OneOf.new(*CHOICES[:format]),
                      "text, collapsed (stacks for a flame graph, a line each), pprof, speedscope or html.",
                      placeholder: "NAME", default_text: "by the name of the file, else text"),
          by: own(:by, Config::Types::OneOf.new(*CHOICES[:by]),
                  "What stacks are weighed by: bytes still alive, all that were allocated, or those freed again.",
                  placeholder: "WHAT", default_text: "live"),
          output: own(:output, Config::Types::Path.new, "Write it there.", flags: %w[-o --output], placeholder: "FILE",
                                                                           default_text: "standard output")
        }.freeze
        # How long a worker may take to answer; the thread that does has to get the GVL.
        ANSWER_S = 10.0

        # What came of asking.
        #
        # - answers: Array<Answer> that say ok, by number of worker
        # - warnings: Array<String> about the others
        Result = Struct.new(:answers, :warnings, keyword_init: true)

        class << self
          def options = [*of_its_own.map { |name| OWN.fetch(name) }, *super]

          # @return [Array<Symbol>] of {OWN}
          def of_its_own = %i[worker]

          # @return [String]
          def usage = name.split("::").last.downcase
        end

        private

        # Options that find the server, without those of this command.
        def given = @arguments.given.except(*OWN.keys)

        # @return [Object, nil] the value of one of {OWN}, nil when it was not given
        # @raise [ConfigError]
        def value(name)
          written = @arguments.given[name]
          written && OWN.fetch(name).cast([written])
        rescue Config::Types::Mismatch => e
          nearest = Config::Nearest.to(written, CHOICES.fetch(name, []))
          raise ConfigError, "--#{name.to_s.tr("_", "-")} #{e.message}#{"; did you mean #{nearest}?" if nearest}"
        end

        # Asks the workers, and waits for what they say.
        #
        # @param action [String] "start", "stop", "status" or "report"
        # @param settings [Hash{Symbol=>Object}] of the tracer
        # @return [Result] with one answer at least
        # @raise [ControlError] when there is no server, or nobody answers
        def ask_workers(action, **settings)
          worker = value(:worker)
          socket = control_socket
          Mailbox.open(beside: socket) do |mailbox|
            asked = Control::Client.new(socket).call("trace", action: action, worker: worker, reply_to: mailbox.path,
                                                              **settings).fetch("asked")
            sort(asked, mailbox.collect(asked.size, ANSWER_S))
          end
        end

        # Prints what is wrong with some.
        def warn_of(result) = result.warnings.each { |warning| @err.puts "chaton: #{warning}" }

        def sort(asked, answers)
          good, bad = answers.sort_by { |one| one.worker.to_i }.partition(&:ok?)
          # While one is replaced there may be two of a number.
          silent = asked.dup
          answers.each { |one| silent.delete_at(silent.index(one.worker) || silent.size) }
          warnings = bad.map { |one| "worker #{one.worker} (pid #{one.pid}): #{one.error}" } +
                     silent.map { |number| silence(number) }
          raise ControlError, warnings.join("\n") if good.empty?

          Result.new(answers: good, warnings: warnings)
        end

        def silence(number)
          "worker #{number} did not answer within #{ANSWER_S} s; it has ended, or its threads hold the GVL " \
            "(`chaton status` and the log tell)"
        end
      end
    end
  end
end
