# frozen_string_literal: true

module Chaton
  class Workload
    # What a process is among its siblings: its roles (:web, :jobs, :streams), its number and where it reports.
    #
    # `scoreboard`, `in_flight_table` (jobs) and `batch_table` are shared memory, in which the process has the row
    # `slot`; `death_table` has the batches that ran when workers died. Without a supervisor nobody reads the tables,
    # and they are nil. `channel` is the socket to the supervisor, or nil.
    ProcessContext = Struct.new(:roles, :index, :scoreboard, :slot, :in_flight_table, :batch_table, :death_table,
                                :channel, keyword_init: true)
  end
end
