# frozen_string_literal: true

require "test_helper"
require_relative "support/source_file"

# Checks the house rules in all files: the direction of imports, the length of functions, links, and unfinished work.
# Each failure names the file, the line and the rule.
class TidyTest < Minitest::Test
  FUNCTION_LINES_MAX = 70

  # The layers of lib, outermost first. A file may require files of its own layer and of those below.
  RUBY_LAYERS = [
    %w[cli cli/* rack_handler rails/server],
    %w[config config/*],
    %w[supervisor supervisor/* control single],
    %w[worker worker/* workload workload/* rails/active_record_pool],
    %w[web web/* jobs jobs/* streams streams/* memory memory/* live live/* event_stream job batch batch/*
       iterable_job iterable_job/* consumer sidekiq sidekiq/* testing testing/* rails rails/* pool support_thread],
    %w[native]
  ].freeze

  # Crate => workspace crates it may depend on.
  RUST_IMPORTS = {
    "crates/admin" => ["chaton-core", "chaton-memory"],
    "crates/core" => [],
    "crates/web" => ["chaton-core"],
    "crates/embedded" => ["chaton-core"],
    "crates/jobs" => ["chaton-core", "chaton-embedded", "chaton-redis"],
    "crates/live" => ["chaton-core", "chaton-embedded", "chaton-redis"],
    "crates/redis" => ["chaton-core", "chaton-embedded"],
    "crates/streams" => ["chaton-core", "chaton-embedded"],
    "crates/jemalloc" => [],
    "crates/memory" => [],
    "crates/testkit" => [],
    "crates/traces" => ["chaton-core"],
    "ext/chaton" => ["chaton-admin", "chaton-core", "chaton-embedded", "chaton-jobs", "chaton-live", "chaton-memory",
                     "chaton-streams", "chaton-traces", "chaton-web"]
  }.freeze
  RUBY_CRATES = %w[magnus rb-sys rb_sys].freeze

  # One letter of each word is in brackets, so that the patterns do not match this file.
  LEFT_BEHIND = /\b(?:TOD[O]|FIXM[E]|XX[X])\b/
  SKIPPED = /^\s*(?:ski[p]\b|#\[ignor[e])/
  REGISTRIES = /rubygem[s]\.org|crate[s]\.io|npmj[s]\.com|pyp[i]\.org/

  def test_functions_are_short
    each_violation("has a function longer than #{FUNCTION_LINES_MAX} lines") do |file|
      long = file.functions.find { |_, _, lines| lines > FUNCTION_LINES_MAX }
      "line #{long[1]}: #{long[0]} has #{long[2]}" if long
    end
  end

  def test_ruby_files_freeze_their_strings
    each_violation("does not start with the frozen_string_literal comment") do |file|
      first = file.lines.find { |line| !line.start_with?("#!") }
      "line 1" if file.language == :ruby && first.to_s.chomp != "# frozen_string_literal: true"
    end
  end

  def test_no_work_is_left_for_later
    each_violation("leaves work for later; finish it or file an issue") { |file| file.line_of(LEFT_BEHIND) }
  end

  def test_no_test_is_skipped
    each_violation("skips a test; fix or remove it") do |file|
      file.line_of(SKIPPED) if file.path.include?("test") && file.language
    end
  end

  # The manifest of the models names the libraries of crates/core once more, as it is no part of the workspace.
  def test_the_models_of_core_are_compiled_with_its_libraries
    features = %w[crates/core/Cargo.toml crates/core/loom/Cargo.toml].map do |path|
      File.read(path)[/^rustix = .*features = \[(.*)\]/, 1].scan(/\w+/).sort - %w[std]
    end
    assert_equal(*features)
  end

  def test_no_registry_is_named
    each_violation("names a package registry") { |file| file.line_of(REGISTRIES) unless file.path.end_with?(".lock") }
  end

  def test_rust_imports_go_one_way
    wrong = RUST_IMPORTS.filter_map do |crate, allowed|
      found = manifest(crate)[:dependencies].grep(/\Achaton-/) - allowed
      "#{crate} depends on #{found.join(", ")}" unless found.empty?
    end
    assert_empty wrong
    assert_equal RUST_IMPORTS.keys.sort, SourceFile.glob("{crates/*,ext/*}/Cargo.toml").map(&:folder).sort,
                 "a crate was added or removed: list its imports in RUST_IMPORTS"
  end

  def test_engines_know_no_ruby
    crates = RUST_IMPORTS.keys.grep(%r{\Acrates/})
    wrong = crates.select { |crate| (manifest(crate)[:all] & RUBY_CRATES).any? }
    assert_empty wrong, "only ext/chaton may use #{RUBY_CRATES.join(", ")}"
    sources = SourceFile.glob("crates/*/{src,tests}/**/*.rs")
    assert_empty(sources.select { |file| file.line_of(/\b(?:magnus|rb_sys)::/) }.map(&:path))
  end

  def test_ruby_imports_go_one_way
    each_violation("requires a layer above its own") do |file|
      own = layer(file.feature)
      next unless own
      file.requires.filter_map do |name, line|
        above = layer(name)
        "line #{line}: #{name}" if above && above < own
      end.first
    end
  end

  def test_links_in_documents_resolve
    SourceFile.glob("{*,docs/**/*,examples/**/*,ext/**/*}.md").each do |file|
      broken = file.links.reject { |link| File.exist?(File.expand_path(link, File.dirname(file.absolute))) }
      assert_empty broken, "#{file.path} has broken links"
    end
  end

  def test_the_main_documents_exist
    %w[README.md CHANGELOG.md CONTRIBUTING.md LICENSE].each { |name| assert_path_exists name }
    assert_match(/^## /, File.read("CHANGELOG.md"), "the change log names no version")
  end

  # The lane runs last, when everything else has taken half an hour.
  def test_the_tests_that_ci_names_exist
    words = "#{File.read(".ci/run")[/^lane=\(.*?\)/m]}; printf '%s\\n' \"${lane[@]}\""
    names = IO.popen(["bash", "-c", words], &:read).split
    missing = names.reject { |name| File.directory?("test/#{name}") || File.exist?("test/#{name}_test.rb") }
    assert_equal [], missing
    assert_includes names, "unit"
  end

  def test_figures_have_their_raw_results
    cited = %w[README.md docs/BENCHMARKS.md].flat_map { |page| File.read(page).scan(%r{bench/runs/[\w.-]+}) }.uniq
    assert_operator cited.size, :>, 0
    cited.each do |folder|
      assert_operator Dir["#{folder}/raw/*"].size, :>, 0, "#{folder} is cited, but has no raw results"
    end
  end

  def setup = Dir.chdir(SourceFile::ROOT)

  private

  def each_violation(rule)
    found = SourceFile.all.filter_map do |file|
      violation = yield file
      "#{file.path} #{rule}: #{violation}" if violation
    end
    assert_empty found, found.join("\n")
  end

  # Dependencies of a crate by name. A dependency of its tests only is not an import.
  def manifest(crate)
    section = nil
    names = { dependencies: [], all: [] }
    File.foreach("#{crate}/Cargo.toml") do |line|
      section = line[/^\[(.+)\]/, 1] || section
      name = line[/^([\w-]+)(?:\.workspace)?\s*=/, 1]
      next unless name && section&.end_with?("dependencies")
      names[:all] << name
      names[:dependencies] << name if section.end_with?("dependencies") && !section.include?("dev-")
    end
    names
  end

  def layer(feature)
    name = feature&.delete_prefix("chaton/")
    return unless name && feature.start_with?("chaton/")
    RUBY_LAYERS.index { |globs| globs.any? { |glob| File.fnmatch(glob, name) } }
  end
end
