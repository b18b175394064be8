# frozen_string_literal: true

require "test_helper"
require "json"
require "open3"
require "tmpdir"

# The Ruby of docs/WRITING_JOBS.md runs as it stands there, on a store, and gives what its comments say.
class GuideTest < Minitest::Test
  PAGE = File.expand_path("../../../docs/WRITING_JOBS.md", __dir__)
  # What the page takes from the application.
  APPLICATION = <<~RUBY
    require "chaton"
    class ImportRow; include Chaton::Job; def perform(row) = nil; end
    class Tenant; def call(*) = yield; end
    module MyErrors; def self.report(*) = nil; end
    module MyPager; def self.call(*) = nil; end
  RUBY
  # `code # => value`: prints line and value for the test.
  SHOWN = /\A(?<code>[^#]+?)\s+# => (?<value>[^,\n]+)/
  JID = /\A"\h{24}"\z/

  def test_the_code_of_the_page_runs
    Dir.mktmpdir do |root|
      FileUtils.mkdir_p(File.join(root, "config"))
      File.write(File.join(root, "config/chaton.rb"), "jobs { store \"sqlite://jobs.db\" }\n#{config.join}")
      File.write(File.join(root, "page.rb"), "#{APPLICATION}#{code.map { |line| shown(line) }.join}")
      out, err, status = Open3.capture3({ "CHATON_LOG_LEVEL" => "error" }, "ruby", "-w", "-I#{library}", "page.rb",
                                        chdir: root)
      assert status.success?, err
      refute_match(/warn/i, err)
      assert_equal expected.size, out.lines.grep(/\A=> /).size, out
      out.lines.grep(/\A=> /).zip(expected) { |line, value| assert_same_value value, line.delete_prefix("=> ").chomp }
    end
  end

  private

  def library = File.expand_path("../../../lib", __dir__)

  def blocks = File.read(PAGE).scan(/^```ruby\n(.*?)^```/m).flatten

  def config = blocks.select { |block| block.start_with?("# config/chaton.rb") }

  def code = (blocks - config).flat_map(&:lines)

  def expected = code.filter_map { |line| line[SHOWN, :value] }

  def shown(line)
    found = SHOWN.match(line) or return line
    "#{found[:code].sub(/\A(\w+\.\w+\(.*\)|\S.*)\z/) { "puts \"=> \#{(#{Regexp.last_match(1)}).inspect}\"" }}\n"
  end

  # Ids differ each time.
  def assert_same_value(value, got)
    value.match?(JID) ? assert_match(JID, got) : assert_equal(value.strip, got)
  end
end
