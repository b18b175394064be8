# frozen_string_literal: true

require_relative "../peers/chaton_with"
require_relative "../peers/puma"
require_relative "../support/bar"
require_relative "apps"

module Bench
  module Gc
    # One row of the table: what is asked of whom, and what has to come out.
    Case = Struct.new(
      :name,     # for --case and file names
      :title,    # for people
      :kind,     # how it is measured: :curve, :gaps or :cost
      :rackup,   # the application's config.ru
      :path,     # what is requested
      :mode,     # how, see support/load.lua
      :connections, # of a closed loop
      :beside,   # nothing runs along, as far as Web::Slice asks
      :servers,  # all under measurement
      :scouts,   # of the peers, keep this many after one short slice each; nil: all
      :rounds,   # slices for each server
      :seconds,  # length of a slice, or of a step of the curve
      :warmup_s, # load before each, not counted
      :factor,   # from one step of the curve to the next
      :shows,    # metrics of the table's cells
      :bars,
      keyword_init: true
    ) do
      def initialize(**given)
        super(**{ path: "/", mode: "get", warmup_s: 1, rackup: CATALOGUE }.merge(given))
      end
    end

    # The core a pinned Puma runs on.
    PINNED_CORE = 0
  end
end
