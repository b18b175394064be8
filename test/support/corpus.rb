# frozen_string_literal: true

# The tables of requests that the tests of the Rust parser use, too; `hostile.txt` describes the format.
module Corpus
  FOLDER = File.expand_path("../../crates/web/tests/corpus", __dir__)

  # One line: a request's name, its expected result, and its bytes.
  Entry = Struct.new(:name, :expected, :bytes)

  ESCAPE = /\\(?:x(?<hex>\h\h)|\{(?<count>\d+)\*(?<text>[^}]*)\}|(?<plain>[rnt0\\]))/
  PLAIN = { "r" => "\r", "n" => "\n", "t" => "\t", "0" => "\0", "\\" => "\\" }.freeze

  module_function

  # @param table [String] "hostile" or "valid"
  # @return [Array<Entry>]
  def entries(table)
    lines = File.readlines(File.join(FOLDER, "#{table}.txt"), chomp: true, encoding: Encoding::BINARY)
    lines.reject { |line| line.empty? || line.start_with?("#") }.map do |line|
      name, expected, bytes = line.split(" | ", 3)
      Entry.new(name.dup.force_encoding(Encoding::UTF_8), expected, unescape(bytes))
    end
  end

  # @return [String] binary
  def unescape(text)
    text.b.gsub(ESCAPE) do
      match = Regexp.last_match
      next match[:hex].hex.chr if match[:hex]
      next unescape(match[:text]) * match[:count].to_i if match[:count]
      PLAIN.fetch(match[:plain])
    end
  end
end
