# frozen_string_literal: true

require "test_helper"
require "stringio"
require "tmpdir"
require "chaton/supervisor/pidfile"
require "chaton/telemetry/log"

class PidfileTest < Minitest::Test
  def setup
    @dir = Dir.mktmpdir
    @path = File.join(@dir, "run/server.pid")
    @output = StringIO.new
  end

  def teardown
    FileUtils.remove_entry(@dir)
  end

  def pidfile
    Chaton::Supervisor::Pidfile.new(@path, log: Chaton::Telemetry::Log.new(io: @output))
  end

  def test_it_names_this_process_and_goes_with_it
    one = pidfile.tap(&:write)
    assert_equal "#{Process.pid}\n", File.read(@path)
    one.remove
    refute_path_exists @path
  end

  def test_a_stale_one_is_replaced
    FileUtils.mkdir_p(File.dirname(@path))
    File.write(@path, "999999999\n")
    pidfile.write
    assert_equal Process.pid, File.read(@path).to_i
    assert_match(/stale pidfile/, @output.string)
  end

  def test_a_number_that_went_to_another_program_is_stale
    FileUtils.mkdir_p(File.dirname(@path))
    reader, writer = IO.pipe
    pid = spawn("cat", in: reader, out: File::NULL)
    File.write(@path, pid.to_s)
    pidfile.write
    assert_equal Process.pid, File.read(@path).to_i
  ensure
    writer.close
    Process.wait(pid)
  end

  def test_a_running_server_keeps_its_own
    FileUtils.mkdir_p(File.dirname(@path))
    reader, writer = IO.pipe
    pid = spawn(["sh", "chaton 0.1.0 supervisor"], "-c", "read line", in: reader, out: File::NULL)
    File.write(@path, pid.to_s)
    error = assert_raises(Chaton::Error) { pidfile.write }
    assert_match(/running process #{pid}/, error.message)
    assert_equal pid, File.read(@path).to_i
  ensure
    writer.close
    Process.wait(pid)
  end

  def test_a_program_with_the_name_in_a_path_or_a_script_is_none
    FileUtils.mkdir_p(File.dirname(@path))
    reader, writer = IO.pipe
    pids = [["sh", "/srv/chaton/bin/read"], ["sh", "sh"]].map do |name|
      spawn(name, "-c", "read line # exec chaton", in: reader, out: File::NULL)
    end
    pids.each do |pid|
      File.write(@path, pid.to_s)
      pidfile.write
      assert_equal Process.pid, File.read(@path).to_i
    end
  ensure
    writer.close
    pids.each { |pid| Process.wait(pid) }
  end

  # As in a container that starts again: the same numbers, other processes.
  def test_a_server_that_began_after_the_file_was_written_is_another_one
    FileUtils.mkdir_p(File.dirname(@path))
    reader, writer = IO.pipe
    pid = spawn(["sh", "chaton 0.1.0 supervisor"], "-c", "read line", in: reader, out: File::NULL)
    File.write(@path, pid.to_s)
    File.utime(Time.now - 60, Time.now - 60, @path)
    pidfile.write
    assert_equal Process.pid, File.read(@path).to_i
  ensure
    writer.close
    Process.wait(pid)
  end

  def test_another_process_s_pidfile_stays
    one = pidfile.tap(&:write)
    File.write(@path, "1")
    one.remove
    assert_path_exists @path
  end

  def test_a_forked_child_leaves_it
    one = pidfile.tap(&:write)
    Process.wait(fork do
      one.remove
      exit!(0)
    end)
    assert_path_exists @path
  end
end
