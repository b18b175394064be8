# frozen_string_literal: true

require "json"
require_relative "../../control"
require_relative "../../telemetry/size"
require_relative "../server_command"
require_relative "../table"
require_relative "answer_socket"

module Chaton
  class CLI
    module Profile
      # The base of subcommands. Workers get a command through the server, and answer directly.
      class Command < ServerCommand
        # An option of subcommands.
        def self.define_option(name, type, says, **rest)
          Config::Option.new(name: name, group: :memory, type: type, says: says, default_text: "as configured",
                             flags: ["--#{name.to_s.tr("_", "-")}"], **rest)
        end
        private_class_method :define_option

        # Option => words it takes.
        CHOICES = { format: %i[text collapsed pprof svg], by: %i[live allocated freed] }.freeze
        # By name.
        OWN = {
          worker: define_option(:worker, Config::Types::Number.new(0..100_000),
                                "Only this worker; `chaton status` shows the numbers.",
                                placeholder: "N", default_text: "all"),
          every: define_option(:every, Config::Types::Number.new(1..1_000_000), "Sample one of this many objects.",
                               placeholder: "N"),
          duty: define_option(:duty, Config::Types::Number.new(0.001..1.0),
                              "Share of the time during which tracing is on.", placeholder: "SHARE"),
          window_ms: define_option(:window_ms, Config::Types::Number.new(0.1..1000.0, unit: "milliseconds"),
                                   "How long it is on without a break.", placeholder: "MS"),
          format: define_option(:format, Config::Types::OneOf.new(*CHOICES[:format]),
                                "text, collapsed (stacks, also for speedscope), pprof or svg (a flame graph).",
                                placeholder: "NAME", default_text: "by the name of the file, else text"),
          by: define_option(:by, Config::Types::OneOf.new(*CHOICES[:by]),
                            "What stacks are ordered by: bytes still alive, all that were allocated, or those freed.",
                            placeholder: "WHAT", default_text: "live"),
          output: define_option(:output, Config::Types::Path.new, "Write the report to this file.",
                                flags: %w[-o --output], placeholder: "FILE", default_text: "standard output")
        }.freeze
        # Time for a worker's answer; the thread that answers needs the GVL.
        ANSWER_S = 10.0

        # The answers to a command.
        #
        # - answers: Array<Answer> that say ok, by number of worker
        # - warnings: Array<String> about the others
        Result = Struct.new(:answers, :warnings, keyword_init: true)

        class << self
          def options = [*own_options.map { |name| OWN.fetch(name) }, *super]

          # @return [Array<Symbol>] of {OWN}
          def own_options = %i[worker]

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
        # @raise [ControlError] when there is no server, or no worker answers
        def ask_workers(action, **settings)
          worker = value(:worker)
          server = control_socket
          AnswerSocket.open(beside: server) do |socket|
            asked = Control::Client.new(server).call("ask", action: action, worker: worker, reply_to: socket.path,
                                                            **settings).fetch("asked")
            sort(asked, socket.collect(asked.size, ANSWER_S))
          end
        end

        # Prints the warnings.
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

      # chaton profile start
      class Start < Command
        def self.own_options = %i[worker every duty window_ms]

        def run
          settings = %i[every duty window_ms].to_h { |name| [name, value(name)] }.compact
          result = ask_workers("start", **settings)
          warn_of(result)
          result.answers.each { |answer| @out.puts line(answer) }
          0
        end

        private

        def line(answer)
          status = answer.status
          began = status["already"] ? "was profiling already" : "profiles"
          format("worker %<worker>s (pid %<pid>s) %<began>s: 1 of %<every>s objects, %<share>s %% of the time, in " \
                 "windows of %<window_ms>s ms",
                 began: began, worker: answer.worker, pid: answer.pid, every: status["every"],
                 share: (status["duty"].to_f * 100).round(1), window_ms: status["window_ms"])
        end
      end

      # chaton profile status
      class Status < Command
        # Column => field.
        COLUMNS = {
          "worker" => "worker", "pid" => "pid", "profiles" => "running", "seconds" => "seconds", "windows" => "windows",
          "sampled" => "sampled", "alive" => "live_samples", "takes" => "profile_bytes"
        }.freeze

        def self.switches = ["--json"]

        def run
          result = ask_workers("status")
          warn_of(result)
          statuses = result.answers.map(&:status)
          @out.puts @arguments.switch?("--json") ? JSON.pretty_generate(statuses) : text(statuses)
          0
        end

        private

        def text(statuses)
          Table.text(COLUMNS.keys, statuses.map { |status| COLUMNS.values.map { |field| cell(field, status[field]) } })
        end

        def cell(field, value)
          case field
          when "pid" then value.to_s
          when "profile_bytes" then value && Telemetry::Size.of(value)
          else value
          end
        end
      end

      # chaton profile stop
      class Stop < Command
        def run
          result = ask_workers("stop")
          warn_of(result)
          result.answers.each do |answer|
            did = answer.status["already"] ? "did not profile" : "has stopped; `chaton profile report` has what it saw"
            @out.puts "worker #{answer.worker} (pid #{answer.pid}) #{did}"
          end
          0
        end
      end
    end
  end
end
