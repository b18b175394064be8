# frozen_string_literal: true

require "tmpdir"
require_relative "../peers/chaton"
require_relative "../peers/puma"

module Bench
  # Event streams.
  module Live
    APPS = File.expand_path("apps", __dir__)

    # Chaton with a log of its own.
    class LiveChaton < Chaton
      def initialize(**given)
        super(config: File.join(APPS, "chaton.rb"), **given)
      end

      def start
        @folder = Dir.mktmpdir("chaton-bench-live")
        super(File.join(APPS, "chaton.ru"))
      end

      # @return [Process::Waiter] says messages from a process of its own
      def say_beside(query)
        out = File.join(@folder, "said")
        command = ["ruby", "-I#{ROOT}/lib", File.join(APPS, "say.rb"), query]
        Process.detach(Process.spawn(environment, *command, chdir: File.dirname(APPS), out:, err: out))
      end

      def command_line = super(File.join(APPS, "chaton.ru"))

      def stop
        super
        FileUtils.rm_rf(@folder) if @folder
      end

      private

      def environment
        super.merge("BENCH_WORKERS" => @workers.to_s, "BENCH_STORE" => File.join(@folder.to_s, "live.db"),
                    "CHATON_CONFIG" => File.join(APPS, "chaton.rb"))
      end
    end

    # Sockets that Puma hands over, and a thread of the application that writes to them.
    class LivePuma < Puma
      def start = super(File.join(APPS, "puma.ru"))
      def command_line = super(File.join(APPS, "puma.ru"))
    end
  end
end
