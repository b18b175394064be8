# frozen_string_literal: true

require_relative "../peers/chaton_streams"
require_relative "../support/bar"

module Bench
  module Streams
    # One row of the table: what is done by whom, and what has to come out.
    Case = Struct.new(
      :name,     # for --case and file names
      :title,    # for people
      :kind,     # how it is measured, see Contest::KINDS
      :log,      # :kafka or :local; nil: each server says
      :consumer, # a class of apps/consumers.rb
      :records,  # of each topic
      :bytes,    # of a record's value
      :topics,   # how many, one after another
      :threads,  # how many, one after another
      :rate,     # records a second that are sent
      :seconds,  # how long it is watched
      :servers,  # what stands beside each other, each with a label
      :rounds,   # slices for each server
      :shows,    # metrics of the table's cells
      :bars,
      keyword_init: true
    ) do
      def initialize(**given)
        super(**{ bytes: 100, rounds: 3, bars: [] }.merge(given))
      end
    end

    # What is measured beside others, by its name only; `what` is for whoever measures it.
    Contender = Struct.new(:label, :what)
  end
end
