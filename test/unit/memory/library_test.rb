# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "tmpdir"
require "chaton/memory/library"

class LibraryTest < Minitest::Test
  Library = Chaton::Memory::Library
  BUNDLED = File.expand_path("../../../lib/chaton/#{Library::BUNDLED}", __dir__)

  def setup
    @dir = File.realpath(Dir.mktmpdir("chaton-library"))
    @env = { Library::VARIABLE => "#{@dir}/none:#{@dir}" }
  end

  def teardown = FileUtils.remove_entry(@dir)

  def test_libraries_are_found_by_name
    %w[libjemalloc.so.1 libjemalloc.so.2 libjemalloc.so libmimalloc.so.1 libmimalloc.so.2.0 libmimalloc.so.10
       libmimalloc-secure.so.3].each { |name| File.write("#{@dir}/#{name}", name) }
    File.symlink("libmimalloc.so.2.0", "#{@dir}/libmimalloc.so.2")
    found = ->(name) { Library.all(name, env: @env).map { |library| File.basename(library.path) } }
    assert_equal %w[libjemalloc.so.2], found.call("jemalloc")
    assert_equal %w[libmimalloc.so.10 libmimalloc.so.2 libmimalloc.so.1], found.call("mimalloc")
  end

  def test_the_bundled_library_comes_last
    libraries = Library.all("jemalloc", env: {})
    assert_equal BUNDLED, libraries.last.path, "run `rake compile`"
    assert_equal [true], libraries.map(&:bundled?).last(1)
    assert_equal 1, libraries.count(&:bundled?)
    assert_nil libraries.last.unfit
    locked = File.read(File.expand_path("../../../Cargo.lock", __dir__))
    assert_equal locked[/tikv-jemalloc-sys"\nversion = ".*\+([\d.]+)-/, 1], libraries.last.version
  end

  def test_the_linkers_directories
    assert(Library.directories.all? { |folder| File.directory?(folder) })
    assert_includes Library.directories.map { |folder| File.realpath(folder) },
                    File.dirname(File.realpath(Library.new("c", c_library).path))
  end

  def test_files_that_cannot_be_loaded_are_unfit
    text, other, missing = %w[text other missing].map { |name| Library.new("jemalloc", "#{@dir}/#{name}") }
    File.write(text.path, "GROUP ( libjemalloc.a )")
    head = File.binread(RbConfig.ruby, 64)
    File.binwrite(other.path, head.dup.tap { |bytes| bytes[18, 2] = "\xF3\x00".b })
    assert_equal "it is not a shared library", text.unfit
    assert_equal "it is built for another architecture", other.unfit
    assert_match(/No such file/, missing.unfit)
    assert_equal [nil, nil], [text.version, missing.version]
  end

  private

  # Every process on this system has one.
  def c_library = File.read("/proc/self/maps")[%r{(/\S+/libc[.-]\S*)}, 1]
end
