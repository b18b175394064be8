# frozen_string_literal: true

# A text file of the project, for the tidiness rules.
class SourceFile
  # Pages that are not in the gem are linked to by this address.
  PAGES = "https://github.com/chaton-rb/chaton/blob/main/"
  ROOT = File.expand_path("../..", __dir__)
  # Generated files: builds, scratch files, measurements, and the packages of the fuzz target.
  GENERATED = %r{\A(?:target|tmp|pkg|doc|\.git|bench/runs|examples/.*/(?:log|storage)|.*/(?:target|tmp|corpus))/}
  LANGUAGES = { ".rb" => :ruby, ".rake" => :ruby, ".ru" => :ruby, ".gemspec" => :ruby, ".rs" => :rust }.freeze
  TEXT = %w[.rb .rake .ru .gemspec .rs .md .toml .yml .sh .rbs .lua .erb .html .lock].freeze
  NAMED = %w[Gemfile Rakefile].freeze

  attr_reader :path

  class << self
    # @return [Array<SourceFile>] all text files that were written by hand
    def all
      @all ||= glob("**/*", File::FNM_DOTMATCH).select do |file|
        TEXT.include?(File.extname(file.path)) || NAMED.include?(file.path) || file.path.match?(%r{\A(?:bin|exe|\.ci)/})
      end
    end

    # @return [Array<SourceFile>] matching files without generated ones
    def glob(pattern, flags = 0)
      found = Dir.glob(pattern, flags, base: ROOT).grep_v(GENERATED)
      found.select { |path| File.file?(File.join(ROOT, path)) }.map { |path| new(path) }
    end
  end

  # @param path [String] from the project's root
  def initialize(path)
    @path = path
  end

  def absolute = File.join(ROOT, path)
  def folder = File.dirname(path)
  def lines = @lines ||= File.readlines(absolute, encoding: "UTF-8").map(&:scrub)

  # @return [:ruby, :rust, nil]
  def language = NAMED.include?(path) || ruby_shebang? ? :ruby : LANGUAGES[File.extname(path)]

  # @return [String, nil] the feature for `require`
  def feature = path[%r{\Alib/(.+)\.rb\z}, 1]

  # @return [String, nil] "line N: text" of the first match
  def line_of(pattern)
    index = lines.index { |line| line.match?(pattern) }
    index && "line #{index + 1}: #{lines[index].strip}"
  end

  # @return [Array<(String, Integer)>] required features of this project, with their lines
  def requires
    lines.each_with_index.filter_map do |line, index|
      if (name = line[/^\s*require "(chaton[^"]*)"/, 1])
        [name, index + 1]
      elsif (name = line[/^\s*require_relative "([^"]+)"/, 1])
        [File.expand_path(name, File.join("/", folder)).delete_prefix("/lib/"), index + 1]
      end
    end
  end

  # @return [Array<String>] files that a document links to, relative or as a page of the repository
  def links
    found = lines.join.gsub("](#{PAGES}", "](#{ROOT}/").scan(/\]\(([^)\s]+)\)/).flatten
    found.grep_v(%r{\A(?:\w+://|#|mailto:)}).map { |link| link.sub(/#.*/, "") }
  end

  # Finds functions by their indentation, which rustfmt and rubocop ensure.
  # @return [Array<(String, Integer, Integer)>] name, first line, number of lines
  def functions
    case language
    when :ruby then blocks(/^(?<indent>\s*)(?:\w+ )?def (?<name>[\w.?!=]++)(?! = |.*(?:\)|\w) = )/, "end")
    when :rust then blocks(/^(?<indent>\s*)(?:pub(?:\([^)]*\))? )?(?:[\w" ]+ )?fn (?<name>\w+)/, "}")
    else []
    end
  end

  private

  def ruby_shebang? = File.extname(path).empty? && lines.first.to_s.match?(/\A#!.*ruby/)

  # Recognizes a trait's method without a body, also when its parameters have lines of their own.
  def declaration?(first)
    lines[first..].find { |line| line.rstrip.end_with?(";", "{", "}") }.to_s.rstrip.end_with?(";") && language == :rust
  end

  def blocks(opening, closing)
    lines.each_with_index.filter_map do |line, first|
      found = opening.match(line)
      next if found.nil? || declaration?(first)
      last = (first...lines.size).find { |index| lines[index].start_with?("#{found[:indent]}#{closing}") }
      [found[:name], first + 1, last - first + 1] if last
    end
  end
end
