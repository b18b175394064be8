# frozen_string_literal: true

require "fileutils"
require "tmpdir"

# A small file system for tests with a full disk. Mounting it needs root.
module SmallDisk
  module_function

  # @yieldparam dir [String]
  def open(megabytes:)
    dir = Dir.mktmpdir("chaton-disk")
    system("mount", "-t", "tmpfs", "-o", "size=#{megabytes}m", "tmpfs", dir, exception: true)
    yield dir
  ensure
    # A process of a failed test may still hold a file, so the unmount is lazy.
    system("umount", "--lazy", dir)
    FileUtils.remove_entry(dir)
  end

  def resize(dir, megabytes:)
    system("mount", "-o", "remount,size=#{megabytes}m", dir, exception: true)
  end

  # Fills the disk to its last block.
  #
  # @return [String] the file to delete to free space
  def fill(dir)
    path = File.join(dir, "ballast")
    File.open(path, "wb") { |file| loop { file.syswrite("x" * 4096) } }
  rescue Errno::ENOSPC
    path
  end
end
