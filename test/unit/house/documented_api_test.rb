# frozen_string_literal: true

require "test_helper"
require "tmpdir"

class DocumentedApiTest < Minitest::Test
  SOURCE = <<~RUBY
    # A thing.
    class Thing
      def undocumented(value) = value
      # Documented.
      def tick(now) = now
      def size = 0
      private def hidden(value) = value
    end
    # Another thing.
    class Other
      def tick(now) = now
    end
    class Bare; end
  RUBY

  def test_methods_with_parameters_and_classes_need_a_sentence
    script = "require './rakelib/support/documented_api'; puts DocumentedApi.new(ARGV.first).missing"
    Dir.mktmpdir do |folder|
      File.write("#{folder}/thing.rb", SOURCE)
      # In a process of its own, because YARD changes the core classes.
      missing = IO.popen(["ruby", "-e", script, "#{folder}/*.rb"], err: File::NULL, &:readlines)
      assert_equal %w[Bare Thing#undocumented], missing.map { |line| line[/: (\S+) is not documented/, 1] }
    end
  end
end
