# frozen_string_literal: true

require "test_helper"
require "chaton/native"
require "chaton/supervisor/reaper"

class OrphanReaperTest < Minitest::Test
  Reaper = Chaton::Supervisor::OrphanReaper

  # A process that orphans come to, as to PID 1; it tells which processes are still there.
  INHERITOR = lambda do |report|
    Chaton::Native.become_subreaper
    before = fork { exit!(0) }
    reaper = Reaper.new(inherits: true)
    started, stay = Queue.new, Queue.new
    Thread.new { (started << fork { exit!(0) }) && stay.pop }
    reader, writer = IO.pipe
    parent = fork { writer.puts(fork { exit!(0) }) && exit!(0) }
    Process.wait(parent)
    pids = { before: before, of_a_thread: started.pop, orphan: reader.gets.to_i }
    Thread.pass until pids.each_value.all? { |pid| zombie?(pid) }
    after = Array.new(2) do
      reaper.tick(reaper.due_at)
      pids.select { |_, pid| zombie?(pid) }.keys
    end
    report.puts(after.inspect)
  end

  def self.zombie?(pid)
    File.read("/proc/#{pid}/stat").include?(") Z ")
  rescue Errno::ENOENT
    false
  end

  def test_orphans_are_reaped_at_the_second_look_and_nothing_else_is
    reader, writer = IO.pipe
    pid = fork do
      self.class.instance_exec(writer, &INHERITOR)
      exit!(0)
    end
    writer.close
    assert_equal "[[:before, :of_a_thread, :orphan], [:before, :of_a_thread]]\n", reader.gets
  ensure
    Process.wait(pid)
  end

  def test_where_no_orphans_come_it_is_never_due
    assert_nil Reaper.new.due_at
  end
end
