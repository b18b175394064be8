# frozen_string_literal: true

require_relative "pause"

module Chaton
  class CLI
    module Jobs
      # chaton jobs resume QUEUE
      class Resume < Pause
        def run = set(false, "gives jobs again")
      end
    end
  end
end
