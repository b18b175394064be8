# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "tmpdir"
require "chaton/memory/library"
require "support/process_figures"
require "support/server"

# What each thread of the pool adds to the memory of a process.
class ThreadMemoryTest < Minitest::Test
  include ServerTest

  THREADS = 500
  # The pages of its stacks, Ruby's records and a few of the allocator's caches. A thread took 85 to 92 with all caches.
  KIB_MAX = 50

  BUNDLED = File.expand_path("../../../lib/chaton/#{Chaton::Memory::Library::BUNDLED}", __dir__)

  def teardown
    super
    FileUtils.rm_rf(@own_jemalloc) if @libraries
  end

  def test_a_pool_thread_takes_little_memory
    one, many = [1, THREADS].map { |threads| start(threads) }
    one_kib = ProcessFigures.resident_kib(one.pid)
    many.eventually("each of #{THREADS} threads takes at most #{KIB_MAX} KiB", timeout_s: 40) do
      @each_kib = (ProcessFigures.resident_kib(many.pid) - one_kib) / THREADS
      @each_kib <= KIB_MAX
    end
    assert_operator @each_kib, :<=, KIB_MAX
  rescue Server::Late => e
    flunk "#{e.message.lines.first} It was #{@each_kib} KiB."
  end

  private

  def start(threads)
    server = boot(config: "threads #{threads}..#{threads}", env: { "CHATON_ALLOCATOR_PATH" => own_jemalloc })
    # A thread gets its name when it has entered the pool.
    server.eventually("all threads", timeout_s: 15) { names(server.pid).grep(/\Achaton pool/).size == threads }
    server
  end

  # A directory with the jemalloc that is built with the extension, under the name that is looked for.
  def own_jemalloc
    @own_jemalloc ||= Dir.mktmpdir("chaton-libraries").tap do |folder|
      FileUtils.cp(BUNDLED, File.join(folder, "libjemalloc.so.2"))
    end
  end

  def names(pid)
    Dir.glob("/proc/#{pid}/task/*/comm").map { |path| File.read(path) }
  rescue SystemCallError
    []
  end
end
