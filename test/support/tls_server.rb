# frozen_string_literal: true

require_relative "http_client"
require_relative "server"
require_relative "tls_files"

# A server with HTTPS, and clients that trust its certificate.
module TlsServer
  # Answers with what it got, in the form that the path names.
  APP = <<~RUBY
    require "io/wait"
    big = "0123456789abcdef" * 65_536
    File.binwrite("big.bin", big)
    tls = %w[HTTPS rack.url_scheme SERVER_PORT SSL_CLIENT_VERIFY SSL_CLIENT_S_DN SSL_CLIENT_CERT]
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/env" then [200, {}, [[*env.values_at(*tls), env["puma.peercert"]&.subject].map { |v| v.to_s[/.*/] }.join("|")]]
      when "/echo" then [200, {}, [env["rack.input"].read]]
      when "/big" then [200, {}, [big]]
      when "/parts" then [200, {}, Enumerator.new { |parts| 64.times { |at| parts << big[at * 16_384, 16_384] } }]
      when "/file" then [200, {}, File.open("big.bin")]
      when "/cut" then [200, {}, Enumerator.new { |parts| parts << "begun"; raise "cut" }]
      when "/relay"
        io = env["rack.hijack"].call
        Thread.new do
          io.write("HTTP/1.1 101 Switching Protocols\\r\\nConnection: upgrade\\r\\nUpgrade: echo\\r\\n\\r\\n")
          IO.copy_stream(io, io)
          io.write("end")
          io.close
        end
        [-1, {}, []]
      when "/full"
        io = env["rack.hijack"].call
        Thread.new do
          # The client takes no more when nothing has fitted for so long.
          io.write_nonblock(big) while io.wait_writable(0.5)
          io.close
          warn "closed its end"
        end
        [-1, {}, []]
      when "/sockets"
        [200, {}, [Dir["/proc/self/fd/*"].count { |fd| File.socket?(fd) }.to_s]]
      when "/partial"
        [200, { "rack.hijack" => ->(io) { io.write(big) && io.close } }, []]
      else [200, {}, ["hello"]]
      end
    end)
  RUBY
  BIG = "0123456789abcdef" * 65_536

  def setup
    @tls = TlsFiles.new(Dir.mktmpdir("chaton-tls"))
    @tls.write("app")
  end

  def teardown
    super
    FileUtils.remove_entry(@tls.path(""))
  end

  # @param parameters [Hash] of the bind
  def serve(config = "workers 0", rackup: APP, pair: @tls.pair("app"), **parameters)
    boot(rackup: rackup, config: "#{bind(**pair, **parameters)}\n#{config}")
  end

  def bind(**parameters) = "bind \"https://127.0.0.1:0\", **#{parameters.inspect}"

  def port(server) = server.log[%r{https://[^ "]+?:(\d+)}, 1].to_i

  def client(server, **options) = RawClient.new(port(server), tls: @tls.context, **options)

  # @return [String] of the certificate that a client gets
  def subject(server, **options)
    context = @tls.context.tap { |one| one.verify_hostname = false }
    RawClient.open(port(server), tls: context, **options) { |one| one.to_io.peer_cert.subject.to_s }
  end

  # TLS 1.3 tells the client only after its own handshake.
  def refused(&block) = assert_raises(OpenSSL::SSL::SSLError, EOFError, Errno::ECONNRESET, &block)

  def request(path, *lines) = "#{["GET #{path} HTTP/1.1", "Host: localhost", *lines].join("\r\n")}\r\n\r\n"
end
