# frozen_string_literal: true

require "did_you_mean"

# The names that `rake test` accepts: parts, and single files as the report names them ("integration/web/accept").
class TestNames
  # @param parts [Array<String>]
  # @param root [String] folder of the tests
  def initialize(parts, root: "test")
    @parts = parts
    @files = Dir[File.join(root, "*", "**", "*_test.rb")]
      .to_h { |path| [path.delete_prefix("#{root}/").delete_suffix("_test.rb"), path] }
  end

  # @param name [String]
  # @return [String, nil] the path if it names a file
  def file(name) = @parts.include?(name) ? nil : @files[name]

  # The part that a file belongs to; the broker of the streams runs for theirs only.
  # @param name [String] of a file
  # @return [String]
  def part_of(name) = name.start_with?("integration/streams/") ? "streams" : name[%r{\A[^/]+}]

  # @param names [Array<String>]
  # @return [String, nil] a sentence about the first one that is neither a part nor a file
  def problem(names)
    name = names.find { |one| !@parts.include?(one) && !@files.key?(one) } or return
    TestNames.unknown("part or file of the tests", name, @parts + @files.keys, shown: @parts)
  end

  # @param noun [String] what the name should be
  # @param name [String]
  # @param known [Array<String>]
  # @param shown [Array<String>] those that are listed if none is similar
  # @return [String]
  def self.unknown(noun, name, known, shown: known)
    similar = DidYouMean::SpellChecker.new(dictionary: known).correct(name).first
    "there is no #{noun} '#{name}'; " + (similar ? "did you mean '#{similar}'?" : "there are #{shown.join(", ")}")
  end
end
