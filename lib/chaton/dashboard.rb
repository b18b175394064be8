# frozen_string_literal: true

require "json"
require_relative "telemetry/running_work"

module Chaton
  # The dashboard as a Rack application, in an application that Chaton serves. The application decides who may see it;
  # an action is only taken for a page of the same origin.
  #
  # @example Rails: config/routes.rb
  #   authenticate(:user, ->(user) { user.admin? }) { mount Chaton::Dashboard => "/chaton" }
  # @example config.ru
  #   map("/chaton") { run Chaton::Dashboard }
  class Dashboard
    # The answer in a process that is not a worker of Chaton's.
    NO_SERVER = "The dashboard shows the Chaton server that serves it, and this process is not served by one.\n"
    # What the page asks for every two seconds, below the place where it is mounted.
    POLL = "/dashboard.json"
    private_constant :NO_SERVER, :POLL

    # Rails writes a line for each request before it routes it; it writes none for those of the page, but for errors.
    module RailsLog
      # Once Rails has loaded its own logger of requests.
      def self.quiet
        ::Rails::Rack::Logger.prepend(self) if defined?(::Rails::Rack::Logger) && !(::Rails::Rack::Logger < self)
      end

      def call(env)
        log = ::Rails.logger
        Dashboard.poll?(env) && log.respond_to?(:silence) ? log.silence { super } : super
      end
    end
    private_constant :RailsLog

    @lock = Mutex.new

    class << self
      # Names the server that is shown.
      #
      # @param plan [Config::Plan]
      # @param scoreboard [Native::Scoreboard]
      # @private
      def of_process(plan, scoreboard)
        @lock.synchronize { @plan, @scoreboard, @native = plan, scoreboard, nil }
      end

      # @param env [Hash{String=>Object}] of Rack
      # @return [Array(Integer, Hash, Array<String>)]
      def call(env)
        leave_out(env)
        status, type, body = answer(env)
        return [503, { "content-type" => "text/plain" }, [NO_SERVER]] unless status

        [status, { "content-type" => type, **Native::Dashboard.headers }, env["REQUEST_METHOD"] == "HEAD" ? [] : [body]]
      end

      # @param env [Hash{String=>Object}] of Rack, before the application routes it
      # @return [Boolean] whether it asks for the figures that the page renews every two seconds
      # @private
      def poll?(env)
        env["PATH_INFO"].to_s.end_with?(POLL) && "#{env["SCRIPT_NAME"]}#{env["PATH_INFO"]}" == @poll
      end

      private

      # The page must not be seen in its own figures: not among the requests, and not in Rails' log.
      def leave_out(env)
        @poll = "#{env["SCRIPT_NAME"]}#{POLL}"
        RailsLog.quiet
        work = Telemetry::RunningWork.of(Thread.current)&.work
        work.leave_out if work.respond_to?(:leave_out)
      end

      # @return [Array(Integer, String, String), nil]
      def answer(env)
        texts = [env["SCRIPT_NAME"].to_s, env["REQUEST_METHOD"], env["PATH_INFO"].to_s, env["QUERY_STRING"].to_s,
                 host(env), env["HTTP_ORIGIN"], env["HTTP_SEC_FETCH_SITE"]]
        native&.call(*texts.map { |bytes| bytes && String.new(bytes, encoding: Encoding::UTF_8).scrub })
      end

      # The one that the browser sees. A page of another site can send neither header as it likes.
      def host(env) = env["HTTP_X_FORWARDED_HOST"]&.split(",")&.first&.strip || env["HTTP_HOST"]

      def native
        @lock.synchronize { @native ||= open if @scoreboard }
      end

      def open
        Native::Dashboard.new(JSON.generate(@plan.admin_document(store: @plan.jobs&.store_settings)), @scoreboard)
      end
    end
  end
end
