# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs processes
      class Processes < Command
        def run
          positional
          processes = client.processes.map { |one| { **one, info: parsed(one[:info]), work: work(one[:work]) } }
          answer(processes, processes.empty? ? "no process runs jobs" : processes.map { |one| text(one) }.join("\n"))
        end

        private

        def work(units)
          units.map do |tid, queue, payload, run_at|
            job = parsed(payload)
            { tid: tid, queue: queue, jid: job["jid"], class: job["wrapped"] || job["class"], run_at: run_at }
          end
        end

        def parsed(json)
          found = JSON.parse(json)
          found.is_a?(Hash) ? found : {}
        rescue JSON::ParserError
          {}
        end

        def text(process)
          info = process[:info]
          state = process[:quiet] ? "quiet" : "runs #{process[:busy]} of #{info["concurrency"]}"
          facts = [process[:identity], info["tag"], state, "#{process[:rss_kb] / 1024} MiB",
                   "queues #{Array(info["queues"]).join(",")}", "beat #{Table.cell(Time.at(process[:beat_at]))}"]
          units = process[:work].map do |unit|
            "  #{unit[:class]} jid=#{unit[:jid]} queue=#{unit[:queue]} since #{Table.cell(Time.at(unit[:run_at]))}"
          end
          [facts.compact.join("  "), *units].join("\n")
        end
      end

      # chaton jobs signal IDENTITY NAME: the process finds it at its next heartbeat.
      class Signal < Command
        # Signal => what the process does.
        NAMES = { "TSTP" => "takes no more jobs", "TERM" => "finishes its running jobs and exits",
                  "TTIN" => "logs what each of its threads does" }.freeze

        def run
          identity, name = positional("IDENTITY", "NAME")
          name = name.upcase.delete_prefix("SIG")
          raise ConfigError, "#{name} is not one of #{NAMES.keys.join(", ")}" unless NAMES.key?(name)

          known = client.processes.map { |process| process[:identity] }
          unless known.include?(identity)
            nearest = Config::Nearest.to(identity, known)
            raise Chaton::Error, "no process #{identity} runs jobs#{"; did you mean #{nearest}?" if nearest} " \
                                 "(`chaton jobs processes` lists them)"
          end
          client.signal(identity, name)
          answer({ identity: identity, signal: name }, "#{identity} #{NAMES.fetch(name)}, at its next heartbeat")
        end
      end
    end
  end
end
