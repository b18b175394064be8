# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs signal IDENTITY NAME: the process finds it at its next sign of life.
      class Signal < Command
        # What a process understands, and what it does then.
        NAMES = { "TSTP" => "takes no more jobs", "TERM" => "finishes what it runs and leaves",
                  "TTIN" => "logs what each of its threads does" }.freeze

        def run
          identity, name = positional("IDENTITY", "NAME")
          name = name.upcase.delete_prefix("SIG")
          raise ConfigError, "#{name} is none of #{NAMES.keys.join(", ")}" unless NAMES.key?(name)

          known = client.processes.map { |process| process[:identity] }
          unless known.include?(identity)
            nearest = Config::Nearest.to(identity, known)
            raise Chaton::Error, "no process #{identity} runs jobs#{"; did you mean #{nearest}?" if nearest} " \
                                 "(`chaton jobs processes` lists them)"
          end
          client.signal(identity, name)
          answer({ identity: identity, signal: name }, "#{identity} #{NAMES.fetch(name)}, at its next sign of life")
        end
      end
    end
  end
end
