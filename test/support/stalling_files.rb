# frozen_string_literal: true

require "fileutils"
require "rbconfig"

# A file system in user space (FUSE) with one file, whose reads wait while a flag is set, as those of a mount whose
# server is gone. Mounting it needs root. It is served by a process of its own, so that nobody waits for itself.
class StallingFiles
  # Numbers of linux/fuse.h.
  LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET =
    [1, 2, 3, 14, 15, 17, 18, 25, 26, 27, 29, 36, 42].freeze
  # `FOPEN_KEEP_CACHE`: without it an open waits for the reads under way.
  KEEP_CACHE = 2
  SILENT = [FORGET, INTERRUPT, BATCH_FORGET].freeze
  ENOENT = 2
  ENOSYS = 38
  ROOT = 1
  FILE = 2

  # @param dir [String] gets the mount point `mount`, and `waiting` when a read waits
  # @param content [String] of the file `slow.bin`
  # @param opens_wait [Boolean] whether an open waits for the reads under way, too
  def initialize(dir, content, opens_wait: false)
    @dir = dir
    FileUtils.mkdir_p(path("mount"))
    File.binwrite(path("content"), content)
    @device = File.open("/dev/fuse", "r+b")
    options = "fd=#{@device.fileno},rootmode=40000,user_id=0,group_id=0,allow_other"
    system("mount", "-i", "-t", "fuse", "-o", options, "stalling", path("mount"),
           @device => @device, exception: true)
    @pid = spawn(RbConfig.ruby, __FILE__, @device.fileno.to_s, dir, (opens_wait ? 0 : KEEP_CACHE).to_s,
                 @device => @device)
  end

  def path(name) = File.join(@dir, name)

  def stall = File.write(path("stall"), "")

  def go_on = FileUtils.rm_f(path("stall"))

  def waiting? = File.exist?(path("waiting"))

  def close
    go_on
    system("umount", "--lazy", path("mount"))
    Process.kill(:KILL, @pid)
    Process.wait(@pid)
    @device.close
  end

  # The process that answers the kernel.
  class Server
    def initialize(device, dir, open_flags)
      @device = device
      @dir = dir
      @open_flags = open_flags
      @content = File.binread(File.join(dir, "content"))
    end

    def run
      loop do
        request = @device.sysread(1 << 18)
        _, opcode, unique, node = request.unpack("LLQQ")
        next if SILENT.include?(opcode)

        respond = -> { reply(unique, *answer(opcode, node, request.byteslice(40..))) }
        # Only reads wait.
        opcode == READ ? Thread.new(&respond) : respond.call
      end
    rescue Errno::ENODEV
      nil # It was unmounted.
    end

    private

    def reply(unique, error, content)
      @device.syswrite([16 + content.bytesize, -error, unique].pack("LlQ") + content)
    end

    def answer(opcode, node, payload)
      case opcode
      when INIT then [0, [7, 31, 1 << 17, 0, 16, 12, 1 << 17, 1, 32, 0, 0, *[0] * 7].pack("LLLLSSLLSSLL7")]
      when LOOKUP
        return [ENOENT, ""] unless payload.start_with?("slow.bin\0")

        [0, [FILE, 0, 1, 1, 0, 0].pack("QQQQLL") + attributes(FILE)]
      when GETATTR then [0, [1, 0, 0].pack("QLL") + attributes(node)]
      when OPEN, OPENDIR then [0, [0, @open_flags, 0].pack("QLL")]
      when READ then [0, read(*payload.unpack("QQL").drop(1))]
      when STATFS then [0, "\0" * 80]
      when RELEASE, RELEASEDIR, FLUSH then [0, ""]
      else [ENOSYS, ""]
      end
    end

    def attributes(node)
      mode, size = node == FILE ? [0o100644, @content.bytesize] : [0o040755, 0]
      [node, size, 0, 1, 1, 1, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].pack("Q6L10")
    end

    def read(offset, size)
      File.write(File.join(@dir, "waiting"), "") if stalled?
      sleep(0.005) while stalled?
      @content.byteslice(offset, size) || ""
    end

    def stalled? = File.exist?(File.join(@dir, "stall"))
  end
end

StallingFiles::Server.new(File.for_fd(ARGV[0].to_i, "r+b"), ARGV[1], ARGV[2].to_i).run if $PROGRAM_NAME == __FILE__
