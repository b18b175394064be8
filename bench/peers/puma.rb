# frozen_string_literal: true

require_relative "server"

module Bench
  # Puma as Debian packages it. On an idle machine with several cores a single Puma is slower than on one core,
  # since Ruby's lock then travels between them: measure it both ways and let the better one count.
  class Puma < Server
    def name = "puma"

    private

    def command(rackup, port)
      ["puma", "--quiet", "-C", "-", "-b", "tcp://127.0.0.1:#{port}", "-e", "production",
       "-w", @workers.to_s, *(@threads ? ["-t", @threads] : []), rackup]
    end
  end
end
