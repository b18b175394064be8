# frozen_string_literal: true

require_relative "sidekiq"

module Bench
  # Sidekiq as Debian packages it, running the jobs of bench/memory, on the C library's own allocator.
  class PayloadSidekiq < Sidekiq
    SETUP = File.join(ROOT, "bench/memory/apps/sidekiq.rb")

    # @param arenas [Integer, nil] for MALLOC_ARENA_MAX; glibc makes eight times as many as there are cores
    def initialize(arenas: nil, **rest)
      super(**rest)
      @arenas = arenas
    end

    def label = [super, @arenas ? "#{@arenas} arenas" : "this machine's arenas"].join(" ")
    def command_line = [@arenas && "MALLOC_ARENA_MAX=#{@arenas}", super].compact.join(" ")

    private

    def command(_folder, _url) = ["sidekiq", "-c", @threads.to_s, "-q", "default", "-e", "production", "-r", SETUP]
    def environment(_folder, url) = { "REDIS_URL" => url, "MALLOC_ARENA_MAX" => @arenas&.to_s, "LD_PRELOAD" => nil }
  end
end
