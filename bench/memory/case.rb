# frozen_string_literal: true

require_relative "../peers/chaton_with"
require_relative "../peers/payload_chaton"
require_relative "../peers/payload_sidekiq"
require_relative "../support/bar"

module Bench
  module Memory
    # One row of the table: what is done by whom, and what has to come out.
    Case = Struct.new(
      :name,     # for --case and file names
      :title,    # for people
      :kind,     # how it is measured: :payloads, :bursts or :workers
      :seconds,  # length of a slice; of bursts, how long nothing is done between two
      :jobs,     # of one burst
      :requests, # to each worker
      :servers,  # all under measurement
      :rounds,   # slices for each server
      :shows,    # metrics of the table's cells
      :bars,
      keyword_init: true
    )
  end
end
