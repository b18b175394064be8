# frozen_string_literal: true

require "json"
require_relative "../native"

module Chaton
  class Supervisor
    # Whether a server and its workers do their work, for `chaton status`: by the rules of `/ready` and of the page
    # (`crates/admin/src/health.rs`), so that the three never differ.
    class Readiness
      def initialize(plan, scoreboard)
        @settings = JSON.generate(plan.admin_document(store: nil))
        @scoreboard = scoreboard
      end

      # @param report [Hash{Symbol=>Object}] as the admin endpoint gets it
      # @return [Hash{Symbol=>Object}] :ready and :unready, the reasons why not; and :workers, the reasons of each
      #   worker of the report
      def of(report)
        found = JSON.parse(Native::Admin.readiness(@settings, JSON.generate(report), @scoreboard))
        { ready: found["status"] == "ready", unready: found["reasons"], workers: found["workers"] }
      end
    end
  end
end
