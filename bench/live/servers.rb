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
      # @param app [String] a file of apps/
      # @param ping_s [Integer] between two comments of an idle stream
      def initialize(app: "chaton.ru", ping_s: 20, **given)
        super(config: File.join(APPS, "chaton.rb"), **given)
        @app = File.join(APPS, app)
        @ping_s = ping_s
      end

      def start
        @folder = Dir.mktmpdir("chaton-bench-live")
        super(@app)
      end

      # @return [Process::Waiter] says messages from a process of its own
      def say_beside(query)
        out = File.join(@folder, "said")
        command = ["ruby", "-I#{ROOT}/lib", File.join(APPS, "say.rb"), query]
        Process.detach(Process.spawn(environment, *command, chdir: File.dirname(APPS), out:, err: out))
      end

      def tls? = @tls
      def command_line = "BENCH_WORKERS=#{@workers} BENCH_PING_S=#{@ping_s} BENCH_STORE=FILE #{super(@app)}"

      def stop
        super
        FileUtils.rm_rf(@folder) if @folder
      end

      private

      def environment
        super.merge("BENCH_WORKERS" => @workers.to_s, "BENCH_PING_S" => @ping_s.to_s,
                    "BENCH_STORE" => File.join(@folder.to_s, "live.db"),
                    "CHATON_CONFIG" => File.join(APPS, "chaton.rb"))
      end
    end

    # An application on Puma.
    class LivePuma < Puma
      # @param name [String] what is added to the server's
      # @param app [String] a file of apps/
      def initialize(name: nil, app: "puma.ru", **given)
        super(**given)
        @name = name
        @app = File.join(APPS, app)
      end

      def name = ["puma", @name].compact.join(" ")
      def tls? = false
      def start = super(@app)
      def command_line = super(@app)
    end

    # Falcon, which Debian does not have: CHATON_BENCH_FALCON names a Ruby file that makes its libraries loadable.
    class LiveFalcon < Server
      SETUP = ENV.fetch("CHATON_BENCH_FALCON", nil)
      APP = File.join(APPS, "falcon.rb")

      # @return [Array<self>]
      def self.installed = SETUP ? [new] : []

      def name = "falcon #{version}"
      def tls? = false
      def start = super(APP)
      def command_line = super(APP)

      private

      def version
        @version ||= IO.popen(["ruby", "-r", SETUP, "-r", "falcon/version", "-e", "print Falcon::VERSION"], &:read)
      end

      def command(app, port) = ["ruby", "-r", SETUP, app, port.to_s]
    end
  end
end
