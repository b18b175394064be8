# frozen_string_literal: true

require "test_helper"
require "chaton/memory/unmovable"
require "support/moving"
require "support/native_gems"

class UnmovableTest < Minitest::Test
  Unmovable = Chaton::Memory::Unmovable

  def test_what_sqlite_knows_by_its_address_stays_where_it_is
    before = Array.new(3) { |number| NativeGems.answer("callbacks", number) }
    assert Unmovable.hold(Moving.method(:move))
    assert_equal(before, Array.new(3) { |number| NativeGems.answer("callbacks", number) })
  end

  def test_blocks_are_among_it_and_what_is_in_no_variable
    kinds = Unmovable.list.map(&:class)
    assert_includes kinds, SQLite3::Database
    assert_includes kinds, Proc
    assert_operator kinds.count { |kind| kind.name.nil? }, :>=, 1, "the wrapper of the aggregate"
  end

  def test_too_much_is_not_held
    called = false
    work = -> { called = true }
    databases = Array.new(Unmovable::COUNT_MAX) { SQLite3::Database.new(":memory:") }
    refute Unmovable.hold(work)
    refute called
  ensure
    databases.each(&:close)
  end
end
