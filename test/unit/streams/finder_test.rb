# frozen_string_literal: true

require_relative "support/streams_unit_case"
require "chaton/streams/runtime"
require "fileutils"

class StreamsFinderTest < StreamsUnitCase
  class EventsConsumer < Chaton::Consumer
    def consume(_batch) = nil
  end

  class Idle < Chaton::Consumer
    private

    def consume(_batch) = nil
  end

  # Reads nothing itself: its instances do.
  class Reader
    def call(record) = record.raw
  end

  module Own
    def self.call(record) = record.raw
  end

  def setup
    super
    @root = Dir.mktmpdir("chaton-finder")
    @finder = Chaton::Streams::Finder.new(root: @root)
  end

  def teardown
    FileUtils.remove_entry(@root)
    super
  end

  def refused(name) = assert_raises(Chaton::ConfigError) { @finder.consumer(name, "events") }.message

  def test_a_class_by_its_name
    assert_equal EventsConsumer, @finder.consumer("StreamsFinderTest::EventsConsumer", "events")
    assert_equal EventsConsumer, @finder.consumer(EventsConsumer, "events")
  end

  def test_a_class_that_is_not_there
    text = refused("StreamsFinderTest::EventConsumer")
    assert_match(/topic "events" is consumed by StreamsFinderTest::EventConsumer, which does not exist; did you/,
                 text)
    assert_match(/did you mean StreamsFinderTest::EventsConsumer\?; load its file \(streams \{ load/, text)
    assert_match(/which does not exist; load/, refused("Qqqqqqqq"))
    assert_match(/which does not exist/, refused("StreamsFinderTest::String"), "no String from outside")
  end

  def test_a_class_in_a_file_that_is_not_loaded
    FileUtils.mkdir_p(File.join(@root, "app/consumers/shop"))
    FileUtils.touch(File.join(@root, "app/consumers/shop/order_lines.rb"))
    assert_match(/did you mean Shop::OrderLines\?/, refused("Shop::OrderLine"))
  end

  def test_a_class_whose_own_file_is_broken
    File.write(File.join(@root, "broken.rb"), "class StreamsBroken < Nowhere\nend")
    Object.autoload(:StreamsBroken, File.join(@root, "broken.rb"))
    assert_match(/Nowhere/, assert_raises(NameError) { @finder.consumer("StreamsBroken", "events") }.message)
  end

  def test_a_class_that_is_no_consumer
    assert_match(/is not a consumer: write class String < Chaton::Consumer/, refused("String"))
    assert_match(/is not a consumer/, refused("Math"))
    assert_match(/has no public method consume; write def consume\(batch\)/, refused("StreamsFinderTest::Idle"))
  end

  def test_deserializers_by_name
    assert_equal Own, @finder.deserializer("StreamsFinderTest::Own", "events")
    assert_kind_of Reader, @finder.deserializer("StreamsFinderTest::Reader", "events")
    assert_equal :json, @finder.deserializer(:json, "events")
    assert_match(/is deserialized by String, which has no call/,
                 assert_raises(Chaton::ConfigError) { @finder.deserializer("String", "events") }.message)
  end

  def test_at_boot_files_are_loaded_and_all_mistakes_are_told
    FileUtils.mkdir_p(File.join(@root, "consumers"))
    File.write(File.join(@root, "consumers/loaded_by_streams.rb"),
               "class LoadedByStreams < Chaton::Consumer\ndef consume(_) = nil\nend")
    assert_nil prepare("load 'consumers'\ntopic 'a', LoadedByStreams")
    error = assert_raises(Chaton::ConfigError) { prepare("topic 'a', NoWhere\ntopic 'b', String") }
    assert_match(/"a" is consumed by NoWhere.*\n.*"b" is consumed by String/, error.message)
    missing = assert_raises(Chaton::AppLoadError) { prepare("load 'nowhere'\ntopic 'a', String") }
    assert_match(%r{streams \{ load ".*/nowhere" \}: there is no such file}, missing.message)
  end

  private

  def prepare(text)
    path = File.join(@root, "chaton.rb")
    File.write(path, "streams do\n#{text}\nend")
    plan = Chaton::Config.load({ config_file: path, directory: @root }, env: {}, root: @root)
    Chaton::Streams::Runtime.prepare(plan, log)
  end
end
