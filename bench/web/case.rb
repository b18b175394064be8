# frozen_string_literal: true

require_relative "../peers/chaton"
require_relative "../peers/puma"

module Bench
  module Web
    # One row of the table: what is asked of whom, and what has to come out.
    Case = Struct.new(
      :name,        # for --case and file names
      :title,       # for people
      :group,       # rows judged together, too
      :rackup,      # the application's config.ru
      :path,        # what is requested
      :connections,
      :mode,        # how it is requested, see load.lua
      :servers,     # all under measurement
      :scouts,      # of Puma's, keep this many after one slice each; nil: all
      :rounds,      # slices for each server
      :seconds,     # length of a slice
      :warmup_s,    # load before each slice, not counted
      :beside,      # [path, connections] of a load that runs along
      :bars,
      keyword_init: true
    ) do
      def initialize(**given)
        super(**{ mode: "get", rounds: 5, seconds: 2, warmup_s: 0, bars: [] }.merge(given))
      end
    end

    APPS = File.expand_path("apps", __dir__)
    HELLO = File.join(APPS, "hello.ru")
    WORK = File.join(APPS, "work.ru")
    SINATRA = File.expand_path("../../examples/sinatra/config.ru", __dir__)
    # The core a pinned Puma runs on.
    PINNED_CORE = 0
  end
end
