# frozen_string_literal: true

require "test_helper"
require_relative "../../../bench/support/gc_meter"

class GcMeterTest < Minitest::Test
  def setup
    @meter = Bench::GcMeter.new(->(env) { env.fetch("app").call })
  end

  def test_counts_collections_of_the_application
    request { GC.start }
    request { GC.start(full_mark: false) }
    assert_equal [2, 1], told.values_at("requests", "major_inside")
    assert_operator told["minor_inside"], :>=, 1
    assert_operator told["inside_ns"], :>, 0
  end

  def test_collections_between_requests_are_not_inside
    request
    before = told["major_inside"]
    GC.start
    request
    assert_equal before, told["major_inside"]
    assert_operator told["major"], :>, 0
  end

  def test_a_collection_within_two_requests_counts_once
    request { request { GC.start } }
    assert_equal 1, told["major_inside"]
  end

  def test_a_body_that_is_made_later_belongs_to_the_request
    body = Enumerator.new do |out|
      GC.start
      out << "x"
    end
    _, _, sent = @meter.call("PATH_INFO" => "/", "app" => -> { [200, {}, body] })
    assert_equal 0, told["major_inside"]
    sent.each { |piece| assert_equal "x", piece }
    sent.close
    assert_equal 1, told["major_inside"]
  end

  def test_a_request_that_raises_has_left
    assert_raises(ArgumentError) { request { raise ArgumentError } }
    GC.start
    request
    assert_equal 0, told["major_inside"]
  end

  private

  def request
    @meter.call("PATH_INFO" => "/", "app" => lambda {
      yield if block_given?
      [200, {}, ["ok"]]
    })
  end

  def told = JSON.parse(@meter.call("PATH_INFO" => "/gc").last.first)
end
