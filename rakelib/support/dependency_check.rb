# frozen_string_literal: true

require "json"

# Checks the locked Rust packages without the network: their licences, packages in several
# versions, and known vulnerabilities where a copy of the RustSec advisory database lies on this machine.
class DependencyCheck
  # Licences that ask for no more than a notice; CDDL covers the files of the package that has it (inferno) alone.
  LICENCES = %w[0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause BSL-1.0 CDDL-1.0 ISC MIT Unicode-3.0 Unlicense Zlib].freeze
  # Packages that may be there in several versions, and why.
  DUPLICATES = {
    "getrandom" => "ring, ahash and tempfile each want another one",
    "shlex" => "bindgen, at build time only, wants the older one",
    "syn" => "derive_builder, strum and bindgen, at build time only, want the older one"
  }.freeze
  # Where `cargo audit` and `cargo deny` keep their copy.
  ADVISORIES = File.join(ENV.fetch("CARGO_HOME") { File.join(Dir.home, ".cargo") }, "advisory-db")

  # @param packages [Array<Hash>] from `cargo metadata`
  # @param advisories [String] folder of the advisory database
  def initialize(packages, advisories: ADVISORIES)
    @packages = packages.select { |package| package["source"] }
    @advisories = advisories
  end

  # @return [Array<String>] one sentence for each violation
  def violations = [*licences, *duplicates, *vulnerable]

  # @return [Boolean] whether there is an advisory database to check against
  def advisories? = File.directory?(@advisories)

  private

  def licences
    @packages.reject { |package| allowed?(package["license"].to_s) }.map do |package|
      "#{package["name"]} has the licence #{package["license"].inspect}, which is not on the list"
    end
  end

  # Alternatives within conjunctions, which is how packages write it; anything else is judged too strictly.
  def allowed?(expression)
    expression.split(/\bAND\b/).then { |all| all.any? && all.all? { |one| any_allowed?(one) } }
  end

  def any_allowed?(alternatives)
    alternatives.delete("()").split(%r{\bOR\b|/}).any? { |one| LICENCES.include?(one.strip) }
  end

  def duplicates
    several = @packages.group_by { |package| package["name"] }.select { |_, same| same.size > 1 }
    (several.keys - DUPLICATES.keys).map do |name|
      "#{name} is there in the versions #{several[name].map { |package| package["version"] }.join(" and ")}"
    end + (DUPLICATES.keys - several.keys).map { |name| "#{name} is there once: take it off the list of duplicates" }
  end

  def vulnerable
    @packages.flat_map do |package|
      Dir[File.join(@advisories, "crates", package["name"], "*.md")].filter_map do |file|
        "#{package["name"]} #{package["version"]}: #{File.basename(file, ".md")}" if affected?(package, File.read(file))
      end
    end
  end

  # Notices that a package is unmaintained or was withdrawn name no versions; they are no vulnerabilities.
  def affected?(package, advisory)
    return false if advisory.match?(/^(?:withdrawn|informational)\s*=/)
    unharmed = advisory.scan(/^(?:patched|unaffected)\s*=\s*\[(.*?)\]/m).join(",").scan(/"([^"]+)"/).flatten
    version = Gem::Version.new(package["version"].sub(/\+.*/, ""))
    unharmed.none? { |range| requirement(range).satisfied_by?(version) }
  end

  # Cargo's caret is all of Ruby's operators do not have: ^1.2 allows 1.x, ^0.2.3 allows 0.2.x.
  def requirement(range)
    Gem::Requirement.new(range.split(",").flat_map do |part|
      next part unless (least = part[/\A\s*(?:\^\s*)?(\d.*?)\s*\z/, 1])
      major, minor = least.split(".")
      [">= #{least}", major == "0" ? "< 0.#{minor.to_i + 1}" : "< #{major.to_i + 1}"]
    end)
  end
end
