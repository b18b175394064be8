# frozen_string_literal: true

require_relative "puma"

module Bench
  # Puma with jemalloc preloaded, as many run it.
  class PumaWithJemalloc < Puma
    # As the dynamic linker finds it.
    LIBRARY = "libjemalloc.so.2"

    def label = "jemalloc #{super}"

    private

    def command(rackup, port) = ["env", "LD_PRELOAD=#{LIBRARY}", *super]
  end
end
