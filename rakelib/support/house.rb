# frozen_string_literal: true

require "set"
require "tsort"

# Measures the project. Tests, conformance suites, simulations and the store that only tests use count as tests.
class House
  TESTS = Regexp.union(%r{/(?:tests|conformance|benches|fuzz|loom)/}, %r{/(?:tests|conformance|simulation)\.rs\z},
                       %r{/store/memory[/.]}, %r{\Acrates/testkit/})
  TEST_MODULE = /^#\[cfg\(test\)\]\n(?:#\[[^\n]*\]\n)*(?:pub(?:\([a-z:]+\))? )?mod \w+ \{\n.*?^\}\n/m
  COMMENT = %r{\A\s*//}

  def table
    { "Rust shipped: lines of code, without blanks, comments and tests" => rust_lines,
      "Ruby in lib: all lines" => Dir["lib/**/*.rb"].sum { |path| File.foreach(path).count },
      "circles of imports in crates" => circles.size,
      "files with methods of one type, at most" => spread.values.map(&:size).max,
      "types with methods in more than two files" => spread.count { |_, files| files.size > 2 },
      "settings; values that were settings" => settings.values_at(true, false).map(&:size).join("; "),
      "rows of docs/CONFIGURATION.md" => File.foreach("docs/CONFIGURATION.md").grep(/\A\| (?!option|hook|line)/).size,
      "words of docs, without configuration, decisions and benchmarks" => words,
      "lines of the glossary" => lines("docs/GLOSSARY.md"), "lines of the README" => lines("README.md") }
      .map { |name, value| "#{name.ljust(66)} #{value.to_s.rjust(7)}" }
  end

  def details
    circles.map { |files| "circle: #{files.sort.join(" ")}" } +
      spread.select { |_, files| files.size > 2 }.map { |type, files| "#{type.last}: #{files.sort.join(" ")}" }
  end

  # @return [Hash{String=>String}] path => text without its tests
  def sources
    @sources ||= Dir["{crates,ext}/**/src/**/*.rs"].reject { |path| TESTS.match?(path) || test_file?(path) }
      .to_h { |path| [path, File.read(path).gsub(TEST_MODULE, "")] }
  end

  # @return [Array<Array<String>>] files that import each other, directly or through others
  def circles
    @circles ||= TSort.each_strongly_connected_component(->(&each) { imports.each_key(&each) },
                                                         ->(path, &each) { imports.fetch(path).each(&each) })
      .select { |files| files.size > 1 }
  end

  private

  def lines(path) = File.foreach(path).count

  # @return [Hash{Boolean=>Array<String>}] beginnings of definitions, by whether somebody can set them
  def settings
    text = Dir["lib/chaton/config/options/*.rb"].map { |path| File.read(path) }.join
    text.scan(/Option\.(in|seconds|keyword|new|fixed)\(/).flatten.group_by { |kind| kind != "fixed" }
  end

  def words
    (Dir["docs/*.md"] - %w[docs/CONFIGURATION.md docs/BENCHMARKS.md]).sum { |path|
      File.read(path).split.size
    }
  end

  def rust_lines
    sources.each_value.sum { |text| text.lines.count { |line| !line.strip.empty? && !COMMENT.match?(line) } }
  end

  # A file that its parent declares for tests only.
  def test_file?(path)
    name = File.basename(path, ".rs")
    [File.dirname(path).then { |folder|
       "#{folder}.rs"
     }, *Dir[File.join(File.dirname(path), "{lib,mod}.rs")]].any? do |parent|
      File.exist?(parent) &&
        File.read(parent).match?(/^#\[cfg\(test\)\]\n(?:#\[[^\n]*\]\n)*(?:pub(?:\([a-z:]+\))? )?mod #{name};/)
    end
  end

  # @return [Hash{String=>Set<String>}] path => paths that it imports from
  def imports
    @imports ||= sources.to_h { |path, text| [path, imported(path, text)] }
  end

  def imported(path, text)
    own = module_of(path)
    names = text.scan(/^\s*(?:pub(?:\([a-z:]+\))? )?use ((?:crate|super|self)::[^;]+);/).flatten.flat_map { |use|
      expand(use)
    }
    names.filter_map { |name| file_of(absolute(own, name)) }.to_set - [path]
  end

  # `a::{b, c::D}` as `a::b` and `a::c::D`.
  def expand(use)
    use = use.gsub(/\s+/, " ")
    head, brace, rest = use.partition("{")
    return [use.sub(/ as .*/, "")] if brace.empty?

    depth = 0
    parts = rest.delete_suffix("}").each_char.slice_before { |c|
      depth += { "{" => 1, "}" => -1 }.fetch(c, 0); c == "," && depth.zero?
    }
    parts.flat_map { |part| expand(head + part.join.delete_prefix(",").strip) }
  end

  # @return [Array<String>] crate and modules
  def module_of(path)
    crate, inside = path.split("/src/", 2)
    [crate, *inside.delete_suffix(".rs").split("/").then { |names|
              %w[lib mod].include?(names.last) ? names[0...-1] : names
            }]
  end

  def absolute(own, name)
    at = own.dup
    parts = name.split("::").map(&:strip)
    at = own.first(1) if parts.first == "crate"
    parts.each { |part| part == "super" ? at.pop : (at << part unless %w[crate self].include?(part)) }
    at
  end

  # The file of the longest module of that name.
  def file_of(name)
    crate, *modules = name
    modules.size.downto(0) do |count|
      inside = modules.first(count)
      path = inside.empty? ? "#{crate}/src/lib.rs" : "#{crate}/src/#{inside.join("/")}.rs"
      return path if sources.key?(path)
    end
    nil
  end

  # @return [Hash{Array=>Set<String>}] crate and type => files with its methods
  def spread
    @spread ||= sources.each_with_object(Hash.new { |types, type| types[type] = Set.new }) do |(path, text), types|
      text.scan(/^impl(?:<[^{]*?>)? (\w+)(?:<[^{]*>)? \{/) { |(type)| types[[path.split("/src/").first, type]] << path }
    end
  end
end
