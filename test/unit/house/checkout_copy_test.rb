# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require_relative "../../../rakelib/support/checkout_copy"

class CheckoutCopyTest < Minitest::Test
  def setup
    @dir = Dir.mktmpdir("chaton-copy")
    @from = File.join(@dir, "from")
    @to = File.join(@dir, "to")
    write(@from, "lib/a.rb", "one")
    write(@from, "bin/run", "two")
    File.chmod(0o755, File.join(@from, "bin/run"))
    copy
  end

  def teardown = FileUtils.remove_entry(@dir)

  def test_files_are_copied_with_their_modes
    assert_equal "one", File.read(File.join(@to, "lib/a.rb"))
    assert File.executable?(File.join(@to, "bin/run"))
  end

  def test_an_unchanged_file_keeps_the_time_of_its_first_copy
    File.utime(1, 1, File.join(@to, "lib/a.rb"))
    copy
    assert_equal 1, File.mtime(File.join(@to, "lib/a.rb")).to_i
  end

  def test_a_changed_file_is_newer_than_the_last_build_even_if_its_checkout_is_old
    before = Time.now - 1
    write(@from, "lib/a.rb", "three")
    File.utime(1, 1, File.join(@from, "lib/a.rb"))
    copy
    assert_equal "three", File.read(File.join(@to, "lib/a.rb"))
    assert_operator File.mtime(File.join(@to, "lib/a.rb")), :>, before
  end

  def test_other_files_go_but_what_the_next_run_needs_stays
    write(@to, "lib/old/gone.rb", "")
    write(@to, "tmp/test_times.json", "{}")
    copy(%w[lib/a.rb never/there])
    assert_equal %w[lib/a.rb tmp/test_times.json], Dir.glob("**/*", base: @to).reject { |name|
      File.directory?(File.join(@to, name))
    }.sort
    refute_path_exists File.join(@to, "lib/old")
  end

  private

  def copy(names = %w[lib/a.rb bin/run]) = CheckoutCopy.new(@from, @to).call(names)

  def write(folder, name, text)
    path = File.join(folder, name)
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, text)
  end
end
