# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "tmpdir"
require "chaton/memory/allocator"

class AllocatorTest < Minitest::Test
  Library = Chaton::Memory::Library
  CONF = "narenas:1,background_thread:false,dirty_decay_ms:5000,muzzy_decay_ms:5000"
  BUNDLED = File.expand_path("../../../lib/chaton/#{Library::BUNDLED}", __dir__)

  def setup = @dir = File.realpath(Dir.mktmpdir("chaton-allocator"))

  def teardown = FileUtils.remove_entry(@dir)

  def choice(wanted = :auto, env = {}, mapped: [], c_library: :glibc, trial: ->(_) {})
    Chaton::Memory::Allocator.new(wanted, env: { Library::VARIABLE => @dir, **env }, mapped: mapped,
                                          c_library: c_library, trial: trial).choice
  end

  def install(name) = FileUtils.cp(BUNDLED, "#{@dir}/#{name}").then { "#{@dir}/#{name}" }

  def test_jemalloc_is_preferred
    path = install("libjemalloc.so.2")
    choice = choice()
    assert_equal ["jemalloc", path, { "MALLOC_CONF" => CONF }, false],
                 [choice.name, choice.path, choice.env, choice.missed]
    assert_equal "allocator: jemalloc 5.3.1 (#{path}), one arena; chosen because it is installed, and it is the " \
                 "fastest and smallest under one Ruby lock", choice.to_s
    assert_match(/the configuration asks for it/, choice(:jemalloc).why)
  end

  def test_the_bundled_library_is_used_if_the_system_has_none
    choice = Library.stub(:directories, []) { choice(:auto, { Library::VARIABLE => nil }) }
    assert_equal BUNDLED, choice.path, "run `rake compile`"
    assert_match(/it came with Chaton/, choice.why)
  end

  def test_the_c_library_is_used_without_any_other
    choice = choice()
    assert_equal ["glibc", nil, { "MALLOC_ARENA_MAX" => "2" }, false],
                 [choice.name, choice.path, choice.env, choice.missed]
    assert_equal "allocator: glibc, 2 arenas; chosen because there is no usable jemalloc in #{@dir}", choice.to_s
    assert choice(:jemalloc).missed
    [{ "MALLOC_ARENA_MAX" => "4" }, { "GLIBC_TUNABLES" => "glibc.malloc.arena_max=1" }].each do |env|
      assert_equal ["glibc", {}], choice(:auto, env).then { |found| [found.name, found.env] }
    end
    assert_equal ["musl", {}], choice(c_library: :musl).then { |found| [found.name, found.env] }
  end

  def test_libraries_that_cannot_be_used_are_named
    path = install("libjemalloc.so.2")
    choice = choice(trial: ->(_) { "version GLIBC_9 not found" })
    assert_equal "there is no usable jemalloc in #{@dir}; #{path} cannot be used: version GLIBC_9 not found", choice.why
    File.write(path, "text")
    assert_match(/cannot be used: it is not a shared library/, choice(trial: ->(_) { flunk "it was tried" }).why)
  end

  def test_the_trial_gets_the_same_variables
    path = install("libjemalloc.so.2")
    tried = nil
    choice(trial: ->(variables) { (tried = variables) && nil })
    assert_equal({ "LD_PRELOAD" => path, "MALLOC_CONF" => CONF }, tried)
  end

  def test_mimalloc
    install("libjemalloc.so.2")
    assert_match(/no usable mimalloc/, choice(:mimalloc).why)
    path = install("libmimalloc.so.2.1")
    choice = choice(:mimalloc, { "MIMALLOC_PURGE_DELAY" => "9" })
    assert_equal ["mimalloc", "2.1", path], [choice.name, choice.version, choice.path]
    refute_includes choice.env, "MIMALLOC_PURGE_DELAY", "theirs"
    assert_includes choice.env, "MIMALLOC_ABANDONED_PAGE_PURGE"
  end

  def test_the_system_can_be_chosen
    install("libjemalloc.so.2")
    assert_equal "allocator: glibc, 2 arenas; chosen because the configuration asks for it", choice(:system).to_s
    choice = choice(:auto, c_library: :other)
    assert_equal ["the system's", {}], [choice.name, choice.env]
    assert_match(/on Linux only/, choice.why)
  end

  def test_an_allocator_that_is_already_present_is_kept
    install("libjemalloc.so.2")
    choice = choice(:auto, { "LD_PRELOAD" => "/opt/libjemalloc.so.2" })
    assert_equal ["jemalloc", nil, { "MALLOC_CONF" => CONF }], [choice.name, choice.path, choice.env]
    assert_match(/LD_PRELOAD names it already/, choice.why)
    assert_empty choice(:auto, { "LD_PRELOAD" => "libtcmalloc_minimal.so.4" }).env
    linked = choice(:auto, mapped: ["jemalloc"])
    assert_match(/this Ruby has it already/, linked.why)
    assert choice(:system, mapped: ["jemalloc"]).missed
    assert_equal "jemalloc", choice(:auto, { "LD_PRELOAD" => "libother.so" }).name
  end

  def test_the_users_settings_are_kept
    install("libjemalloc.so.2")
    choice = choice(:auto, { "MALLOC_CONF" => "narenas:8" })
    assert_equal [{}, "with your MALLOC_CONF"], [choice.env, choice.shape]
  end

  def test_mapped_allocators_of_this_process
    assert_kind_of Array, Chaton::Memory::Allocator.mapped
    assert_includes %i[glibc musl], Chaton::Memory::Allocator.c_library
    program = "require 'chaton/memory/allocator'; print Chaton::Memory::Allocator.mapped"
    lib = File.dirname(BUNDLED, 2)
    command = [{ "LD_PRELOAD" => BUNDLED }, RbConfig.ruby, "-I", lib, "-e", program]
    assert_equal '["jemalloc"]', IO.popen(command, &:read)
  end
end
