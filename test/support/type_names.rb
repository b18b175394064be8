# frozen_string_literal: true

require_relative "source_file"

# The type names that the project defines, and the names that docs/GLOSSARY.md explains or retires.
module TypeNames
  # Names that each module may define with a meaning of its own.
  LOCAL = %w[Config Error Limits Stats Engine State Batch Client Span Result].freeze
  # The classes of commands, which have the commands' names.
  COMMANDS = %r{\Alib/chaton/cli/}
  RUST = /^(?:pub(?:\([a-z:]+\))? )?(?:struct|enum|trait|union|type) ([A-Z]\w*)/
  RUBY = /^\s*(?:(?:class|module) ([A-Z]\w*(?:::[A-Z]\w*)*)|([A-Z][a-z]\w*) = (?:Struct|Data|Class)\.)/
  GLOSSARY = "docs/GLOSSARY.md"
  RETIRED_HEADING = "## Retired names"

  module_function

  # @return [Hash{String => Array<String>}] the files that define each name; tests are left out
  def definitions
    found = Hash.new { |names, name| names[name] = [] }
    rust_files.each { |file| rust_names(file).each { |name| found[name] << file.path } }
    ruby_files.each { |file| ruby_names(file).each { |name| found[name] << file.path } }
    found.transform_values(&:uniq)
  end

  # @return [Array<String>] nouns that the glossary explains
  def explained
    entries = glossary.split(RETIRED_HEADING).first.scan(/^- \*\*([^*]+)\*\*/).flatten
    entries.flat_map { |nouns| nouns.delete("`").split(/, | and | /) }
  end

  # @return [Array<String>] type names that the glossary retired
  def retired = glossary.split(RETIRED_HEADING).fetch(1, "").scan(/`([A-Z]\w+)`/).flatten

  def glossary = File.read(File.join(SourceFile::ROOT, GLOSSARY))

  def rust_files
    files = SourceFile.glob("{crates/*/src,ext/chaton/src}/**/*.rs")
    files.reject { |file| file.path.match?(%r{/(?:tests|conformance)[/.]}) }
  end

  def ruby_files = SourceFile.glob("lib/**/*.rb").reject { |file| file.path.match?(COMMANDS) }

  def rust_names(file) = file.lines.join.sub(/^#\[cfg\(test\)\]\nmod tests \{.*\z/m, "").scan(RUST).flatten

  def ruby_names(file)
    names = file.lines.join.scan(RUBY).map { |nested, made| (nested || made).split("::").last }
    names - namespaces
  end

  # The names of folders, whose modules are opened in each of their files.
  def namespaces
    @namespaces ||= ["Chaton", "CLI", "Native", *Dir[File.join(SourceFile::ROOT, "lib/chaton/**/")].map do |folder|
      File.basename(folder).split("_").map(&:capitalize).join
    end]
  end
end
