# frozen_string_literal: true

require "json"

# Checks the locked Rust packages without the network: their licences, packages in several
# versions, and known vulnerabilities where a copy of the RustSec advisory database lies on this machine.
class DependencyCheck
  # What `cargo deny check` goes by: the licences that are allowed, and the packages that may be there in several
  # versions. Its lists hold strings and one table a line, which the patterns below read.
  POLICY = File.read(File.expand_path("../../deny.toml", __dir__)).freeze
  LICENCES = POLICY[/^allow = \[(.*?)\]/m, 1].scan(/"([^"]+)"/).flatten.freeze
  DUPLICATES = POLICY.scan(/\{ crate = "([^"]+)"/).flatten.freeze
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
    (several.keys - DUPLICATES).map do |name|
      "#{name} is there in the versions #{several[name].map { |package| package["version"] }.join(" and ")}"
    end + (DUPLICATES - several.keys).map { |name| "#{name} is there once: take it off the list in deny.toml" }
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
