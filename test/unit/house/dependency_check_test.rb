# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "tmpdir"
require_relative "../../../rakelib/support/dependency_check"

class DependencyCheckTest < Minitest::Test
  def setup
    @advisories = Dir.mktmpdir("chaton-advisories")
  end

  def teardown = FileUtils.remove_entry(@advisories)

  def test_allowed_licences_pass
    ["MIT", "Apache-2.0/MIT", "GPL-3.0 OR MIT", "Apache-2.0 AND ISC", "(MIT OR Apache-2.0) AND Unicode-3.0"]
      .each { |licence| assert_empty violations(package("one", licence: licence)), licence }
  end

  def test_other_licences_are_named
    ["GPL-3.0", "MIT AND GPL-3.0", nil].each do |licence|
      assert_match(/\Aone has the licence/, violations(package("one", licence: licence)).join)
    end
  end

  def test_a_second_version_needs_a_reason
    assert_equal ["one is there in the versions 1.0.0 and 2.0.0"],
                 violations(package("one"), package("one", version: "2.0.0"))
  end

  def test_a_reason_without_a_second_version_has_to_go
    stale = DependencyCheck.new([], advisories: @advisories).violations
    assert_includes stale, "syn is there once: take it off the list in deny.toml"
  end

  def test_a_vulnerable_version_is_found
    advise('patched = [">= 1.4.2", "^1.2.5"]', 'unaffected = ["< 1.1"]')
    { "1.0.9" => false, "1.1.0" => true, "1.2.4" => true, "1.2.5" => false, "1.4.2" => false }.each do |version, found|
      assert_equal found, violations(package("one", version: version)).any?, version
    end
  end

  def test_a_notice_is_no_vulnerability
    advise('informational = "unmaintained"', "patched = []")
    assert_empty violations(package("one"))
  end

  private

  def package(name, version: "1.0.0", licence: "MIT")
    { "name" => name, "version" => version, "license" => licence, "source" => "registry" }
  end

  # The duplicates that are allowed have to be there, too.
  def violations(*packages)
    known = DependencyCheck::DUPLICATES.flat_map { |name| [package(name), package(name, version: "2.0.0")] }
    DependencyCheck.new([*packages, *known], advisories: @advisories).violations
  end

  def advise(*lines)
    FileUtils.mkdir_p(File.join(@advisories, "crates/one"))
    File.write(File.join(@advisories, "crates/one/RUSTSEC-2026-0001.md"), ["```toml", *lines, "```"].join("\n"))
  end
end
