# frozen_string_literal: true

require "test_helper"
require "chaton/config"
require_relative "../../../rakelib/support/default_settings"
require_relative "../../../rakelib/support/manual"

class ManualTest < Minitest::Test
  PAGE = File.expand_path("../../../docs/CONFIGURATION.md", __dir__)

  def test_the_page_is_current
    assert_equal Chaton::Config::Manual.text, File.read(PAGE), "run `rake docs`"
  end

  def test_the_settings_of_tests_are_current
    path = File.expand_path("../../../crates/default_settings.json", __dir__)
    # Empty lists are written in another way by each version of the library.
    made, kept = [Chaton::Config::DefaultSettings.text, File.read(path)].map { |text| JSON.parse(text) }
    assert_equal made, kept, "run `rake docs`"
  end

  def test_every_option_has_its_group_and_a_sentence
    Chaton::Config::Options::ALL.each do |option|
      assert Chaton::Config::Options::GROUPS.key?(option.group), option.name
      assert_match(/\.\z/, option.says, option.name)
    end
  end

  def test_names_and_flags_are_given_once
    options = Chaton::Config::Options::ALL
    flags = options.flat_map(&:flags)
    assert_equal flags.uniq, flags
    top = options.select { |option| option.scope == :top }.flat_map { |option| [option.name, *option.also] }
    names = top + options.flat_map(&:puma) + Chaton::Config::PumaLines::ACCEPTED.keys +
            Chaton::Config::PumaLines::REFUSED.keys + Chaton::Config::PumaLines::ONLY.keys
    assert_equal names.uniq, names
  end

  def test_defaults_obey_their_own_rules
    Chaton::Config::Options::ALL.each do |option|
      next if option.default.nil? || option.default.respond_to?(:call) || %i[threads workers].include?(option.name)

      assert_equal option.default, option.cast([option.default]), option.name
    end
  end
end
