# frozen_string_literal: true

require "json"
require "socket"
require_relative "../errors"
require_relative "../web/certificates"
require_relative "../web/development_certificate"
require_relative "event_loop"
require_relative "inherited_sockets"

module Chaton
  class Supervisor
    # The listening sockets, one for each bind, in the order of the plan: inherited or newly bound.
    class Listeners
      # Backlog of a bind that names none.
      BACKLOG = 1024

      def initialize(binds, log:, inherited: InheritedSockets.new)
        @binds = binds
        @log = log
        @inherited = inherited
        @sockets = {}
        @inodes = {}
        @new = []
        @owner = Process.pid
      end

      attr_reader :sockets

      # Opens all sockets: clients can connect.
      #
      # @param last [Boolean] see {#bind}
      # @raise [BindError]
      def open(last: true)
        bind(last: last)
        listen
      end

      # Takes the addresses. Clients of a new TCP socket are refused until {#listen}; a Unix socket listens at once,
      # because one that refuses looks like the remains of a killed server.
      #
      # @param last [Boolean] whether no other binds follow: inherited sockets that nobody has taken are closed
      # @raise [BindError] naming the bind that failed, or the file of a certificate
      def bind(last: true)
        check_certificates
        @binds.each { |bind| @sockets[bind.to_s] = take_over(bind) || bind_anew(bind) }
        @sockets.each_value { |socket| @inodes[socket] = inode(socket) if socket.is_a?(UNIXServer) }
        return unless last

        @inherited.left.each do |socket|
          @log.warn("an inherited socket is closed: no bind names it", address: address(socket))
          socket.close
        end
      end

      # Lets clients connect.
      #
      # @raise [BindError]
      def listen
        @new.each { |bind, socket| naming(bind) { socket.listen(bind.backlog || BACKLOG) } }
      end

      # Takes over inherited sockets and binds nothing; for a preloader.
      #
      # @raise [BindError] when a bind has no socket
      def inherit
        check_certificates
        @binds.each do |bind|
          @sockets[bind.to_s] = @inherited.passed(bind) ||
                                raise(BindError, "#{bind} is new in the configuration: a phased restart keeps the " \
                                                 "sockets; restart in full (SIGUSR2) to change binds")
        end
        @inherited.left.each(&:close)
      end

      # @return [Array<String>] addresses for clients, with the port that the kernel chose
      def addresses
        open = @sockets.reject { |_, socket| socket.closed? }
        open.map { |bind, socket| address(socket).sub(/\Atcp(?=:)/, bind[/\A\w+/]) }
      end

      def tls? = @binds.any?(&:tls)

      # @return [Boolean] whether files of certificates were written, or could not be used when they were read last
      def certificates_changed?
        @binds.any? { |bind| bind.tls && !Web::Certificates.current?(bind.tls) }
      end

      # Reads certificates again whose files have changed, for workers that are forked later. Workers log it when they
      # cannot be used.
      def reload_certificates
        prepare_development_certificate
        @binds.each do |bind|
          next if bind.tls.nil? || Web::Certificates.current?(bind.tls)

          keep_certificates(bind)
          @log.debug("certificates were read for later workers", bind: bind.to_s)
        rescue BindError => e
          @log.debug("the old certificates stay", reason: e.message)
        end
      rescue ConfigError => e
        @log.debug("the old certificates stay", reason: e.message)
      end

      # Closes the sockets for which the kernel holds no connection that is still to be accepted. Those on a socket of
      # the service manager wait for the next start.
      def close_empty
        own.each { |socket| refuse_clients(socket) unless waiting?(socket) }
        own.empty?
      end

      # Closes all sockets, and removes the files of Unix sockets. New clients are refused at once, also if another
      # process has copies of the sockets; those of the service manager stay open there.
      def close
        own.each { |socket| refuse_clients(socket) }
        @sockets.each_value { |socket| socket.close unless socket.closed? }
      end

      # @return [Hash{String=>String}] environment of a new start of this process, which gets the sockets too
      def environment = { InheritedSockets::ACTIVATED => JSON.generate(@inherited.activated) }

      private

      # Before an address is taken: no worker could serve it.
      def check_certificates
        prepare_development_certificate
        @binds.each { |bind| keep_certificates(bind) if bind.tls }
      end

      def prepare_development_certificate
        Web::DevelopmentCertificate.new(log: @log).prepare if @binds.any? { |bind| bind.tls&.for_development? }
      end

      def keep_certificates(bind)
        Web::Certificates.keep(bind.tls)
        Web::Certificates.warnings(bind.tls).each { |sentence| @log.warn(sentence) }
      rescue ConfigError => e
        raise BindError, "#{bind} cannot be served: #{e.message}"
      end

      # @return [Array<TCPServer, UNIXServer>] open ones that do not belong to the service manager
      def own = @sockets.except(*@inherited.activated).values.reject(&:closed?)

      # Of a listening TCP socket, `tcpi_unacked` is the length of its queue. To ask for it does not give up the GVL: a
      # connection that arrived between this look and the shutdown would be reset.
      def waiting?(socket)
        return !socket.wait_readable(0).nil? if socket.is_a?(UNIXServer)

        socket.getsockopt(:TCP, :INFO).data.unpack1("@24L").to_i.positive?
      end

      # What is shut down is shut down in every process. A Unix socket refuses when its file is gone.
      def refuse_clients(socket)
        return unless Process.pid == @owner
        return socket.shutdown unless socket.is_a?(UNIXServer)

        # A successor may have made a file of that name.
        File.unlink(socket.path) if @inodes[socket] && @inodes[socket] == inode(socket)
      rescue Errno::ENOTCONN
        # It has not begun to listen.
        nil
      rescue SystemCallError => e
        @log.exception(e, "a listening socket cannot be shut down", address: address(socket))
      ensure
        socket.close
      end

      # @return [Integer, nil] of the file of a Unix socket; no other file gets it as long as the socket is open
      def inode(socket)
        File.stat(socket.path).ino
      rescue Errno::ENOENT
        nil
      end

      def take_over(bind) = @inherited.passed(bind) || @inherited.from_service_manager(bind)

      def bind_anew(bind)
        naming(bind) { bind.scheme == "unix" ? unix(bind) : tcp(bind).tap { |socket| @new << [bind, socket] } }
      end

      def naming(bind)
        yield
      rescue Errno::EADDRINUSE
        raise BindError, "#{bind} #{in_use(bind)}"
      rescue Errno::EACCES, Errno::EPERM
        raise BindError, "#{bind}: permission denied; choose a port above 1023 or a directory this user may write"
      rescue SocketError, SystemCallError, ArgumentError => e
        raise BindError, "#{bind} cannot be bound: #{e.message}"
      end

      def in_use(bind)
        own = @binds.find { |one| bind.port && one.port == bind.port && !one.equal?(bind) }
        return "is in use by another process; stop that one or choose another bind (-b)" unless own

        "has the same port as #{own}; each -b, -p and `bind` adds an address, so remove one of the two"
      end

      # The first address of the host that this machine has.
      def tcp(bind)
        found = Addrinfo.getaddrinfo(bind.host.delete("[]"), bind.port, nil, :STREAM, nil, Socket::AI_PASSIVE)
        begin
          tcp_server(found.shift)
        rescue SystemCallError
          found.empty? ? raise : retry
        end
      end

      # TCPServer.new would listen.
      def tcp_server(address)
        socket = Socket.new(address.pfamily, :STREAM)
        socket.setsockopt(:SOCKET, :REUSEADDR, true)
        socket.bind(address)
        socket.autoclose = false
        TCPServer.for_fd(socket.fileno)
      rescue SystemCallError
        socket&.close
        raise
      end

      def unix(bind)
        remove_stale(bind)
        server = with_umask(bind.umask) { UNIXServer.new(bind.path) }
        File.chmod(bind.mode, bind.path) if bind.mode
        server.listen(bind.backlog || BACKLOG)
        server
      end

      # A killed server leaves a socket file without a listener.
      def remove_stale(bind)
        return unless File.exist?(bind.path)
        raise BindError, "#{bind}: the file exists and is not a socket; remove it" unless File.socket?(bind.path)

        UNIXSocket.new(bind.path).close
        raise Errno::EADDRINUSE
      rescue Errno::ECONNREFUSED
        File.unlink(bind.path)
      end

      def with_umask(umask)
        return yield unless umask

        before = File.umask(umask)
        begin
          yield
        ensure
          File.umask(before)
        end
      end

      def address(socket)
        local = socket.local_address
        return "unix://#{local.unix_path}" if local.unix?

        host = local.ipv6? ? "[#{local.ip_address}]" : local.ip_address
        "tcp://#{host}:#{local.ip_port}"
      end
    end

    # Looks at the files of certificates as workers do, and reads renewed ones: workers that are forked later begin with
    # them if the files cannot be used then. A source of the event loop.
    class CertificateWatch
      attr_reader :due_at

      def initialize(listeners, forkers, every_s:)
        @listeners = listeners
        @forkers = forkers
        @every_s = every_s
        @due_at = EventLoop.now_s + every_s if listeners.tls?
      end

      def ios = []

      def tick(now_s)
        return unless @due_at && now_s >= @due_at

        @due_at = now_s + @every_s
        reload if @listeners.certificates_changed?
      end

      # Reads the files, and has the preloaders read them and open their output files again.
      def reload
        @listeners.reload_certificates
        @forkers.reload
      end
    end
  end
end
