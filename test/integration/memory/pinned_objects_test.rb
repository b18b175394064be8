# frozen_string_literal: true

require "test_helper"
require "chaton/memory/pinned_objects"
require "support/moving"
require "support/native_gems" unless NeedsGems::MISSING.intersect?(%w[nokogiri pg sqlite3])

class PinnedObjectsTest < Minitest::Test
  PinnedObjects = Chaton::Memory::PinnedObjects

  def setup = needs_gems("nokogiri", "pg", "sqlite3")

  def test_objects_that_sqlite_knows_by_address_are_not_moved
    before = Array.new(3) { |number| NativeGems.answer("callbacks", number) }
    assert PinnedObjects.pin_during(Moving.method(:move))
    assert_equal(before, Array.new(3) { |number| NativeGems.answer("callbacks", number) })
  end

  def test_blocks_and_objects_without_a_variable_are_pinned
    kinds = PinnedObjects.list.map(&:class)
    assert_includes kinds, SQLite3::Database
    assert_includes kinds, Proc
    assert_operator kinds.count { |kind| kind.name.nil? }, :>=, 1, "the wrapper of the aggregate"
  end

  def test_nothing_is_compacted_when_too_many_objects_must_be_pinned
    called = false
    work = -> { called = true }
    databases = Array.new(PinnedObjects::COUNT_MAX) { SQLite3::Database.new(":memory:") }
    refute PinnedObjects.pin_during(work)
    refute called
  ensure
    databases.each(&:close)
  end
end
