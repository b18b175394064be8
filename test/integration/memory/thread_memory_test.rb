# frozen_string_literal: true

require "test_helper"
require "support/process_figures"
require "support/server"

# What each thread of the pool adds to the memory of a process.
class ThreadMemoryTest < Minitest::Test
  include ServerTest

  THREADS = 500
  # The pages of its stacks, Ruby's records and a few of the allocator's caches. A thread took 85 with all caches.
  KIB_MAX = 50
  # Finds only the jemalloc that is built with the extension.
  OWN_JEMALLOC = { "CHATON_ALLOCATOR_PATH" => File.expand_path("../../../lib/chaton", __dir__) }.freeze

  def test_a_pool_thread_takes_little_memory
    one, many = [1, THREADS].map { |threads| start(threads) }
    one_kib = ProcessFigures.resident_kib(one.pid)
    many.eventually("each of #{THREADS} threads takes at most #{KIB_MAX} KiB", timeout_s: 60) do
      @each_kib = (ProcessFigures.resident_kib(many.pid) - one_kib) / THREADS
      @each_kib <= KIB_MAX
    end
  rescue Server::Late => e
    flunk "#{e.message.lines.first}: #{@each_kib} KiB"
  end

  private

  def start(threads)
    server = boot(config: "threads #{threads}..#{threads}")
    server.eventually("all threads", timeout_s: 60) { ProcessFigures.threads(server.pid) > threads }
    server
  end
end
