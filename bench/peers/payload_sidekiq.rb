# frozen_string_literal: true

require_relative "sidekiq"

module Bench
  # The installed Sidekiq with the C library's allocator, running the jobs of bench/memory.
  class PayloadSidekiq < Sidekiq
    SETUP = File.join(ROOT, "bench/memory/apps/sidekiq.rb")

    # @param arenas [Integer, nil] MALLOC_ARENA_MAX; glibc's default is eight for each core
    def initialize(arenas: nil, **rest)
      super(**rest)
      @arenas = arenas
    end

    def label = [super, @arenas ? "#{@arenas} arenas" : "this machine's arenas"].join(" ")
    def command_line = [@arenas && "MALLOC_ARENA_MAX=#{@arenas}", super].compact.join(" ")

    private

    def setup = SETUP
    def environment(_folder, url) = { "REDIS_URL" => url, "MALLOC_ARENA_MAX" => @arenas&.to_s, "LD_PRELOAD" => nil }
  end
end
