# frozen_string_literal: true

require_relative "server"

module Bench
  # The installed Puma. On an idle machine a Puma process is slower on several cores than on one, because Ruby's lock
  # moves between them. It is measured pinned and unpinned, and the better result counts.
  class Puma < Server
    def name = "puma"

    private

    def command(rackup, port)
      ["ruby", "-S", "puma", "--quiet", "-C", "-", "-b", address(port, "ssl"), "-e", "production",
       "-w", @workers.to_s, *(@threads ? ["-t", @threads] : []), rackup]
    end
  end
end
