# frozen_string_literal: true

module Bench
  # The processor core of servers that are measured on one core.
  PINNED_CORE = 0

  # One row of a table: the load, the servers under it, and the bars that the result has to reach.
  Case = Struct.new(
    :name,        # for --case and file names
    :title,       # for people
    :kind,        # how it is measured; web: a class, nil for CaseRun; else the suite's CaseRun lists the kinds
    :group,       # rows that are also judged together
    :servers,     # all servers under measurement
    :scouts,      # so many of the peers are measured in full, chosen by one short slice each; nil: all
    :rounds,      # slices for each server
    :seconds,     # length of a slice
    :warmup_s,    # load before each slice, not counted
    :shows,       # metrics of the table's cells
    :bars,
    # Web and gc.
    :rackup,      # the application's config.ru
    :path,
    :mode,        # how the path is requested, see load.lua
    :connections,
    :neighbours,  # processes on the same machine that compute all the time
    :beside,      # [path, connections, mode] of a second load at the same time; no mode: get
    :factor,      # from one step of the curve to the next
    :requests,    # to each worker
    # Jobs.
    :job,         # :noop or :nap; the client's command when enqueueing is measured
    :jobs,        # how many in one slice or burst
    :nap_s,       # duration of a nap
    :delay_ms,    # between the server and Redis, each way
    :watch,       # whether new threads and fibers are counted
    # Apps.
    :tour, # a class that visits the application
    # Streams.
    :log,         # :kafka or :local; nil: each server says
    :consumer,    # a class of apps/consumers.rb
    :records,     # of each topic
    :bytes,       # of a record's value
    :topics,      # numbers of topics, measured one after another
    :threads,     # numbers of threads, measured one after another
    :rate,        # records a second
    keyword_init: true
  ) do
    def initialize(mode: "get", rounds: 5, warmup_s: 0, neighbours: 0, bytes: 100, bars: [], **rest) = super
  end
end
