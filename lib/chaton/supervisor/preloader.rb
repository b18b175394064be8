# frozen_string_literal: true

require "json"
require "socket"
require_relative "../boot_signals"
require_relative "../errors"
require_relative "../version"
require_relative "../worker/forked_child"
require_relative "event_loop"

module Chaton
  class Supervisor
    # The supervisor's handle of a *preloader*: a process that has loaded the application and forks workers from it on
    # command. The first one is forked from the supervisor, which has no application; a later one is a fresh process
    # with the code now on disk.
    #
    # One SEQPACKET socket connects the two, with one JSON message per packet:
    #
    #   → {"fork":SERIAL,"index":I,"scoreboard_slot":S}  with the worker's end of its channel (SCM_RIGHTS)
    #   → {"reload":true}                                open output files and read certificates again
    #   → {"ended":{…}}                                  a worker has ended: the payload of restart.chaton
    #   ← {"loaded":true,"pool":N} | {"failed":"reason"} once; the size of ActiveRecord's pool, or null
    #   ← {"forked":SERIAL,"pid":PID} | {"refused":SERIAL,"reason":"why"}  for each
    #
    # The preloader forks twice and the process in between exits, so that the kernel makes the worker a child of the
    # supervisor, which is a subreaper: all workers are its direct children. See docs/FORK_SAFETY.md. It exits when it
    # has read the last message of a closed socket.
    #
    # A preloader that dies is started again, as a fresh process, when the next worker is needed.
    class Preloader
      # The environment variable of a preloader's process; JSON: the supervisor's version of Chaton, generation, whether
      # the preloader may compact the heap, and the descriptors of the socket and of the shared memory.
      VARIABLE = "CHATON_PRELOADER"
      # A longer message is a bug.
      MESSAGE_BYTES_MAX = 65_536
      # Seconds that a preloader may take to exit.
      KILL_GRACE_S = 5.0

      # @return [Boolean] whether this process was started as a preloader
      def self.requested? = ENV.key?(VARIABLE)

      attr_reader :generation
      # @return [String, nil] why it is dead
      attr_reader :reason, :pid, :due_at
      # @return [Integer, nil] size of ActiveRecord's connection pool in the application that it has loaded
      attr_reader :pool_size

      # @param sockets [Hash{String=>IO}] listening sockets by bind
      # @yield [child, reason, refused:] a worker that will never be forked; see {WorkerSet#fork_failed}
      def initialize(launch_command, generation:, sockets:, memory:, load_timeout_s:, log:, compact: true, &fork_failed)
        @launch_command = launch_command
        @generation = generation
        @compact = compact
        @sockets = sockets
        @memory = memory
        @load_timeout_s = load_timeout_s
        @log = log
        @fork_failed = fork_failed
        @serial = 0
        @waiting = []
        @requested = {}
        @state = :dead
        @retired = false
      end

      # Forks the first process and waits until it has loaded the application, however long that takes: whoever starts
      # the server sees that it goes on.
      #
      # @param beside [Array<Object>] sources of an event loop that are served meanwhile
      # @yield in the process, gets its end of the socket and returns its exit status
      # @return [Process::Status, nil] how it ended instead
      # @raise [Chaton::Error] when the system refuses the fork
      def boot(beside: [])
        theirs = connect
        BootSignals.postpone_ends do |resume|
          @pid = Worker::ForkedChild.ours do
            fork do
              resume.call
              @io.close
              exit(yield(theirs))
            end
          end
        end
        theirs.close
        events = EventLoop.new([self, *beside])
        events.turn until ready? || @io.closed?
        ready? ? nil : reap
      rescue SystemCallError => e
        raise Error, "the process that loads the application cannot be forked: #{e.message}"
      end

      # Starts a fresh process.
      def start
        theirs = connect
        @due_at = EventLoop.now_s + @load_timeout_s
        descriptors = @memory.descriptors
        @pid = @launch_command.spawn(@sockets, ios: [theirs, *descriptors.values.map { |fd| shared_io(fd) }],
                                               environment: variables(theirs, descriptors))
        @log.info("preloader started", generation: @generation, pid: @pid)
        self
      rescue SystemCallError => e
        die("it could not be started: #{e.message}", refused: true)
        self
      ensure
        theirs&.close
      end

      # @param theirs [UNIXSocket] the worker's end of the channel
      def fork_worker(child, theirs)
        @waiting << [child, theirs]
        return start if dead?

        request_forks if ready?
      end

      # Has it open its output files and read the files of certificates again. One that is still loading does it when it
      # begins to serve.
      def reload = tell({ reload: true })

      # Has it publish the end of a worker, for subscribers of the application.
      def worker_ended(payload) = tell({ ended: payload })

      def ready? = @state == :ready

      def dead? = @state == :dead

      def retired? = @retired

      # Ends it: no worker will be forked from it any more.
      def retire
        return if @retired

        @retired = true
        @due_at = EventLoop.now_s + KILL_GRACE_S if @pid
        ask_to_exit
        fail_forks("its preloader was retired")
      end

      # Ends it when the server does not start.
      def abort
        return unless @pid

        ask_to_exit
        deadline_s = EventLoop.now_s + KILL_GRACE_S
        readable while !@io.closed? && @io.wait_readable([deadline_s - EventLoop.now_s, 0].max)
        kill
        reap
      end

      def kill
        @due_at = nil
        signal("KILL")
      end

      # @return [Boolean] whether the process may still exist
      def alive? = !@pid.nil?

      def ios = @io && !@io.closed? ? [@io] : []

      # Handles every message that has arrived.
      def readable(_io = @io)
        while @io && !@io.closed?
          message = @io.recvmsg_nonblock(MESSAGE_BYTES_MAX, exception: false)
          return if message == :wait_readable

          bytes = message&.first
          return @io.close if bytes.nil? || bytes.empty?

          take(JSON.parse(bytes, symbolize_names: true))
        end
      rescue SystemCallError
        @io.close
      end

      def tick(now_s)
        return unless @due_at && now_s >= @due_at

        @reason = "it was not loaded within boot_timeout (#{@load_timeout_s} s)" if @state == :loading
        kill
      end

      # A process has ended.
      #
      # @return [Boolean] whether it was this preloader
      def ended(pid, how)
        return false unless pid == @pid

        @pid = nil
        # What it has forked lives on.
        readable
        die(@reason || "it ended (#{how}); its own lines are above in the log")
        @log.warn("preloader ended", generation: @generation, status: how, reason: @reason) unless @retired
        true
      end

      # Closes the supervisor's descriptors in a forked child.
      def close_in_child
        @io&.close
        @waiting.each { |_, theirs| theirs.close }
      end

      private

      # @return [UNIXSocket] the process's end
      def connect
        @io, theirs = UNIXSocket.pair(:SEQPACKET)
        @state = :loading
        @reason = nil
        theirs
      end

      def reap
        _, status = Process.wait2(@pid)
        @pid = nil
        die("it ended")
        status
      end

      # One that is loading does not read its socket, one that serves ignores the signal.
      def ask_to_exit
        @io&.close_write unless @io&.closed?
        signal("TERM")
      rescue SystemCallError
        # It has ended.
        nil
      end

      def tell(message)
        @io.sendmsg_nonblock(JSON.generate(message), exception: false) unless dead?
      rescue SystemCallError, IOError
        # It is dying.
        nil
      end

      def shared_io(descriptor) = IO.for_fd(descriptor, autoclose: false)

      def variables(socket, descriptors)
        { VARIABLE => JSON.generate({ version: VERSION, generation: @generation, compact: @compact,
                                      socket: socket.fileno, memory: descriptors }) }
      end

      def take(message)
        case message
        in { loaded: true, pool: } then loaded(pool)
        in { failed: String => reason } then @reason = reason
        in { forked: Integer => serial, pid: Integer => pid }
          @requested.delete(serial)&.forked(pid, EventLoop.now_s)
        in { refused: Integer => serial, reason: String => reason }
          child = @requested.delete(serial)
          @fork_failed.call(child, "fork failed: #{reason}", refused: true) if child
        end
      end

      def loaded(pool)
        return unless @state == :loading

        @state = :ready
        @pool_size = pool
        # The first one has no due time: that the server is ready is reported by others.
        @log.info("preloader ready", generation: @generation, pid: @pid) if @due_at
        @due_at = nil
        request_forks
      end

      def request_forks
        while (child, theirs = @waiting.shift)
          request_fork(child, theirs)
        end
      end

      def request_fork(child, theirs)
        @requested[@serial += 1] = child
        message = { fork: @serial, index: child.index, scoreboard_slot: child.scoreboard_slot }
        @io.sendmsg_nonblock(JSON.generate(message), 0, nil, Socket::AncillaryData.unix_rights(theirs))
      rescue Errno::EAGAIN, Errno::ENOMEM, Errno::ENOBUFS, Errno::ETOOMANYREFS => e
        take({ refused: @serial, reason: e.message })
      rescue SystemCallError, IOError
        # It is dying. The kernel reports its end, and then this fork fails.
        nil
      ensure
        theirs.close
      end

      def die(reason, refused: false)
        @reason = reason
        @state = :dead
        @due_at = nil
        @io&.close
        fail_forks("its preloader: #{reason}", refused: refused)
      end

      def fail_forks(reason, refused: false)
        @waiting.each { |_, theirs| theirs.close }
        children = @waiting.map(&:first) + @requested.values
        @waiting.clear
        @requested.clear
        children.each { |child| @fork_failed.call(child, reason, refused: refused) }
      end

      def signal(name)
        Process.kill(name, @pid) if @pid
      rescue Errno::ESRCH
        nil
      end
    end
  end
end
