# frozen_string_literal: true

require "socket"
require "tmpdir"
require_relative "../../errors"
require_relative "answer"

module Chaton
  class CLI
    module Trace
      # Where workers send their answers: a socket in a directory that only its owner can enter, and that is gone
      # afterwards. Each worker connects, writes, and closes.
      class Mailbox
        # The longest path of a Unix socket: 108 bytes with the zero at its end (unix(7)).
        PATH_BYTES_MAX = 107
        # A report with all the stacks a tracer may keep, and room to spare.
        ANSWER_BYTES_MAX = 64 << 20
        # Read at once.
        CHUNK_BYTES = 1 << 16

        # @param beside [String] the server's control socket: whatever the service manager hides from the server
        #   (PrivateTmp of systemd), it sees that one's directory
        # @yieldparam mailbox [Mailbox]
        # @return [Object] what the block gives
        # @raise [ControlError] when no directory will do
        def self.open(beside:)
          mailbox = new(folder(beside))
          mailbox.listen(beside)
          yield mailbox
        ensure
          mailbox&.close
        end

        # The first directory that can be written to and whose name leaves room for ours.
        def self.folder(beside)
          places = [File.dirname(File.expand_path(beside)), Dir.tmpdir]
          places.each do |place|
            folder = Dir.mktmpdir("ct", place)
            return folder if socket_in(folder).bytesize <= PATH_BYTES_MAX

            Dir.rmdir(folder)
          rescue SystemCallError, ArgumentError
            # Read-only, or not there: the error of the control socket says more.
            next
          end
          raise ControlError, "no place for a socket to be answered at: neither #{places.uniq.join(" nor ")} can be " \
                              "written to under a name of #{PATH_BYTES_MAX} bytes; set TMPDIR to a short one"
        end

        # @return [String] path
        def self.socket_in(folder) = File.join(folder, "s")
        private_class_method :new, :folder

        # @return [String] of the socket
        attr_reader :path

        def initialize(folder)
          @folder = folder
          @path = self.class.socket_in(folder)
          @letters = {}
        end

        # @param beside [String] the server's control socket
        def listen(beside)
          @server = UNIXServer.new(@path)
          hand_over(beside)
        end

        # Reads what is sent.
        #
        # @param count [Integer] how many workers will
        # @param timeout_s [Numeric] for all of them
        # @param bytes_max [Integer] of one answer
        # @return [Array<Answer>] those that came whole
        def collect(count, timeout_s, bytes_max: ANSWER_BYTES_MAX)
          deadline = now_s + timeout_s
          answers = []
          until answers.size >= count
            ready, = IO.select([@server, *@letters.keys], nil, nil, [deadline - now_s, 0].max)
            break unless ready

            ready.each { |io| io.equal?(@server) ? accept : read(io, bytes_max) { |answer| answers << answer } }
          end
          answers.compact
        end

        # Removes everything.
        def close
          [@server, *@letters.keys].compact.each(&:close)
          File.unlink(@path) if File.socket?(@path)
          Dir.rmdir(@folder)
        end

        private

        # A superuser may ask a server of somebody else, whose workers have to get in.
        def hand_over(beside)
          return unless Process.euid.zero? && File.exist?(beside)

          owner = File.stat(beside).uid
          File.chown(owner, nil, @folder, @path) unless owner.zero?
        end

        def accept
          io = @server.accept_nonblock(exception: false)
          @letters[io] = +"" unless io == :wait_readable
        end

        # Yields the answer once it has ended; nil for one that broke off.
        def read(io, bytes_max)
          letter = @letters.fetch(io)
          bytes = io.read_nonblock(CHUNK_BYTES, exception: false)
          return if bytes == :wait_readable
          letter << bytes if bytes
          return if bytes && letter.bytesize <= bytes_max

          yield(bytes ? too_long(letter) : Answer.parse(letter))
          drop(io)
        rescue SystemCallError
          yield nil
          drop(io)
        end

        def drop(io)
          @letters.delete(io)
          io.close
        end

        def too_long(letter)
          header = JSON.parse(letter.lines.first)
          Answer.new({ **header, "ok" => false, "error" => "its answer is too long; lower trace_stacks_max or " \
                                                           "trace_depth_max" }, "")
        rescue JSON::ParserError
          nil
        end

        def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
