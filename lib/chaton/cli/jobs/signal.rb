# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
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
