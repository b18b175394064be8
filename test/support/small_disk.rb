# frozen_string_literal: true

require "fileutils"
require "tmpdir"

# A file system of its own that is soon full. Needs root, as mounting does.
module SmallDisk
  module_function

  # @yieldparam dir [String]
  def open(megabytes:)
    dir = Dir.mktmpdir("chaton-disk")
    system("mount", "-t", "tmpfs", "-o", "size=#{megabytes}m", "tmpfs", dir, exception: true)
    yield dir
  ensure
    # Lazily: a process that a failed test left may still hold a file.
    system("umount", "--lazy", dir)
    FileUtils.remove_entry(dir)
  end

  # Makes room.
  def resize(dir, megabytes:)
    system("mount", "-o", "remount,size=#{megabytes}m", dir, exception: true)
  end

  # Leaves not a single block.
  #
  # @return [String] the file to delete for room
  def fill(dir)
    path = File.join(dir, "ballast")
    File.open(path, "wb") { |file| loop { file.syswrite("x" * 4096) } }
  rescue Errno::ENOSPC
    path
  end
end
