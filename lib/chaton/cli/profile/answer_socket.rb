# frozen_string_literal: true

require "json"
require "socket"
require "tmpdir"
require_relative "../../errors"

module Chaton
  class CLI
    module Profile
      # The socket to which workers send their answers, in a temporary directory that only its owner can enter. Each
      # worker connects, writes, and closes.
      class AnswerSocket
        # The longest path of a Unix socket: 108 bytes with the zero at its end (unix(7)).
        PATH_BYTES_MAX = 107
        # More than a report with all the stacks that a tracer may keep.
        ANSWER_BYTES_MAX = 64 << 20
        CHUNK_BYTES = 1 << 16

        # @param beside [String] the server's control socket, whose directory the server can see even if the service
        #   manager hides others (PrivateTmp of systemd)
        # @raise [ControlError] when no directory can be used
        def self.open(beside:)
          socket = new(folder(beside))
          socket.listen(beside)
          yield socket
        ensure
          socket&.close
        end

        # The first directory that is writable and has a short enough name.
        def self.folder(beside)
          places = [File.dirname(File.expand_path(beside)), Dir.tmpdir]
          places.each do |place|
            folder = Dir.mktmpdir("ct", place)
            return folder if socket_in(folder).bytesize <= PATH_BYTES_MAX

            Dir.rmdir(folder)
          rescue SystemCallError, ArgumentError
            # It is read-only or does not exist; an error of the control socket would tell more.
            next
          end
          raise ControlError, "no directory for the socket of the answers: neither #{places.uniq.join(" nor ")} is " \
                              "writable with a path below #{PATH_BYTES_MAX} bytes; set TMPDIR to a short one"
        end

        # @return [String] path
        def self.socket_in(folder) = File.join(folder, "s")
        private_class_method :new, :folder

        attr_reader :path

        def initialize(folder)
          @folder = folder
          @path = self.class.socket_in(folder)
          @connections = {}
        end

        # @param beside [String] the server's control socket
        def listen(beside)
          @server = UNIXServer.new(@path)
          change_owner(beside)
        end

        # Reads the answers.
        #
        # @param count [Integer] how many workers will answer
        # @param timeout_s [Numeric] for all of them
        # @param bytes_max [Integer] of one answer
        # @return [Array<Answer>] the complete ones
        def collect(count, timeout_s, bytes_max: ANSWER_BYTES_MAX)
          deadline = now_s + timeout_s
          answers = []
          until answers.size >= count
            ready, = IO.select([@server, *@connections.keys], nil, nil, [deadline - now_s, 0].max)
            break unless ready

            ready.each { |io| io.equal?(@server) ? accept : read(io, bytes_max) { |answer| answers << answer } }
          end
          answers.compact
        end

        # Closes everything and removes the files.
        def close
          [@server, *@connections.keys].compact.each(&:close)
          File.unlink(@path) if File.socket?(@path)
          Dir.rmdir(@folder)
        end

        private

        # If root asks a server of another user, its workers need access.
        def change_owner(beside)
          return unless Process.euid.zero? && File.exist?(beside)

          owner = File.stat(beside).uid
          File.chown(owner, nil, @folder, @path) unless owner.zero?
        end

        def accept
          io = @server.accept_nonblock(exception: false)
          @connections[io] = +"" unless io == :wait_readable
        end

        # Yields a complete answer, or nil for one that broke off.
        def read(io, bytes_max)
          bytes_so_far = @connections.fetch(io)
          bytes = io.read_nonblock(CHUNK_BYTES, exception: false)
          return if bytes == :wait_readable
          bytes_so_far << bytes if bytes
          return if bytes && bytes_so_far.bytesize <= bytes_max

          yield(bytes ? too_long(bytes_so_far) : Answer.parse(bytes_so_far))
          drop(io)
        rescue SystemCallError
          yield nil
          drop(io)
        end

        def drop(io)
          @connections.delete(io)
          io.close
        end

        def too_long(bytes_so_far)
          header = JSON.parse(bytes_so_far.lines.first)
          Answer.new({ **header, "ok" => false, "error" => "its answer is too long; profile for a shorter " \
                                                           "time" }, "")
        rescue JSON::ParserError
          nil
        end

        def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      # One worker's answer: a line of JSON, and for a report the profile.
      #
      # - header: Hash{String=>Object}
      # - body: String, JSON of a profile; empty unless it was asked for
      Answer = Struct.new(:header, :body) do
        # @param bytes [String] all that it sent
        # @return [Answer, nil] nil when it is not complete
        def self.parse(bytes)
          line, newline, body = bytes.partition("\n")
          return if newline.empty?

          header = JSON.parse(line)
          whole = header.is_a?(Hash) && body.bytesize == header.fetch("bytes", 0)
          new(header, body.force_encoding(Encoding::UTF_8)) if whole
        rescue JSON::ParserError
          nil
        end

        def worker = header["worker"]

        def pid = header["pid"]

        def ok? = header["ok"] == true

        # @return [String, nil] why it is not ok
        def error = header["error"]

        # @return [Hash{String=>Object}] of its tracer, see {Memory::TracerControl}
        def status = header.except("ok", "bytes")
      end
    end
  end
end
