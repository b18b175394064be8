# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require "chaton/telemetry/redirect"

class RedirectTest < Minitest::Test
  def setup
    @dir = Dir.mktmpdir
    @out = File.join(@dir, "log/out")
  end

  def teardown
    FileUtils.remove_entry(@dir)
  end

  # Standard output is replaced for good, so it happens in a child.
  def in_child(append)
    Process.wait(fork do
      redirect = Chaton::Telemetry::Redirect.of([@out, nil, append])
      redirect.open
      yield redirect
      exit!(0)
    end)
    assert_predicate Process.last_status, :success?
  end

  def test_output_goes_to_the_file_also_from_programs
    in_child(false) do
      $stdout.puts "from ruby"
      system("echo from a program")
    end
    assert_equal "from ruby\nfrom a program\n", File.read(@out)
  end

  def test_reopening_follows_the_name
    in_child(false) do |redirect|
      $stdout.puts "before"
      File.rename(@out, "#{@out}.1")
      redirect.reopen
      $stdout.puts "after"
    end
    assert_equal ["before\n", "after\n"], [File.read("#{@out}.1"), File.read(@out)]
  end

  def test_a_file_is_emptied_unless_it_is_appended_to
    FileUtils.mkdir_p(File.dirname(@out))
    File.write(@out, "old\n")
    in_child(true) { $stdout.puts "new" }
    assert_equal "old\nnew\n", File.read(@out)
    in_child(false) { $stdout.puts "newer" }
    assert_equal "newer\n", File.read(@out)
  end

  def test_nothing_given_is_nothing_done
    refute_predicate Chaton::Telemetry::Redirect.of(nil), :any?
  end
end
