# frozen_string_literal: true

require "test_helper"
require "support/admin_client"
require "support/tls_server"

# Certificates: which one a client gets, new ones without a restart, and those of clients.
class TlsCertificatesTest < Minitest::Test
  include ServerTest
  include TlsServer

  def test_a_client_gets_the_certificate_for_the_name_it_asks_for
    @tls.write("two", names: %w[two.test *.three.test])
    server = serve(pair: { cert: [@tls.path("app.pem"), @tls.path("two.pem")],
                           key: [@tls.path("app.key"), @tls.path("two.key")] })
    { "localhost" => "localhost", "two.test" => "two.test", "a.three.test" => "two.test", "other.test" => "localhost",
      nil => "localhost" }.each do |name, expected|
      assert_equal "/CN=#{expected}", subject(server, name: name), name.inspect
    end
  end

  def test_changed_files_are_loaded_and_broken_ones_are_not
    [["workers 0", 1], ["workers 2\nthreads 1, 2", 2]].each do |workers, count|
      @tls.write("app")
      server = serve("#{workers}\nlog_level :debug\nconstants_for_tests tls_reload_s: 3600.0")
      kept = client(server)
      @tls.write("app", subject: "/CN=second")
      assert_equal "/CN=localhost", subject(server)
      server.signal("HUP")
      server.wait_line(%r{loaded the certificates of https://}, count: count)
      assert_equal "/CN=second", subject(server)
      # By the supervisor and the preloader, which a single process does not have.
      server.wait_line(/certificates were read for later workers/, count: 2) if count > 1
      File.write(@tls.path("app.key"), "broken")
      server.signal("HUP")
      server.wait_line(/can't use the new certificates of .*the old ones stay: key .*app.key/, count: count)
      assert_equal "/CN=second", subject(server)
      assert_equal "hello", kept.write(request("/")).read_response.body
      restart_a_worker(server) if count > 1
      assert_equal 0, server.stop
    end
  end

  # Its successor has the certificates that the supervisor has read last.
  def restart_a_worker(server)
    server.signal("KILL", server.workers.first)
    server.wait_line(/worker ready/, count: 3)
    assert_equal ["/CN=second"] * 8, Array.new(8) { subject(server) }
  end

  def test_new_connections_have_the_files_looked_at
    server = serve("workers 0\nconstants_for_tests tls_reload_s: 0.1")
    @tls.write("app", subject: "/CN=second")
    server.eventually("the new certificate") { subject(server) == "/CN=second" }
    server.wait_line(/loaded the certificates/)
  end

  # As hooks of tools do, seconds after a renewal: neither the time of the last write nor the inode changes.
  def test_a_key_whose_mode_is_mended_is_loaded
    [[0.1, nil], [3600, "HUP"]].each do |reload_s, signal|
      @tls.write("app")
      server = serve("workers 0\nconstants_for_tests tls_reload_s: #{reload_s}")
      @tls.write("app", subject: "/CN=second") { |key| File.chmod(0o666, key) }
      server.signal(signal) if signal
      server.eventually("it is refused") { subject(server) && server.log.include?("can't use the new certificates") }
      File.chmod(0o600, @tls.path("app.key"))
      server.signal(signal) if signal
      server.eventually("it is served") { subject(server) == "/CN=second" }
      assert_equal 1, server.log.scan(/app.key: every user .*of those served, .*app.pem expires on .* GMT/).size
      assert_equal 0, server.stop
    end
  end

  def test_a_hang_up_reads_files_that_have_not_changed
    server = serve("workers 0")
    2.times do |count|
      server.signal("HUP")
      server.wait_line(/loaded the certificates of/, count: count + 1)
    end
  end

  def test_the_end_of_a_certificate_is_in_the_metrics_and_near_it_in_the_log
    served = @tls.write("app", days: 0.1)
    server = serve("workers 1\nadmin { bind \"unix://admin.sock\" }")
    series = /^chaton_tls_certificate_not_after_seconds\{bind="https:.*",file="#{@tls.path("app.pem")}"\} (\S+)/
    metric = -> { AdminClient.new(server.path("admin.sock")).get("/metrics").body[series, 1].to_f }
    assert_equal served.not_after.to_i, metric.call
    server.wait_line(/the certificates of https.* have to be renewed; of those served, .*app.pem expires on/)
    renewed = @tls.write("app")
    server.signal("HUP")
    server.eventually("it is renewed") { metric.call == renewed.not_after.to_i }
  end

  # From the first preloader, and from one that a phased restart starts.
  def test_a_worker_that_begins_late_serves_the_last_certificates_that_could_be_used
    @tls.write("alice", names: ["alice"], subject: "/CN=Alice", use: "clientAuth")
    [0, 1].each do |restarts|
      @tls.write("app")
      FileUtils.cp(@tls.path("ca.pem"), @tls.path("clients.pem"))
      server = serve("workers 1\nlog_level :debug\nconstants_for_tests tls_reload_s: 0.1",
                     verify_mode: "force_peer", ca: @tls.path("clients.pem"))
      restarts.times { server.tap { |one| one.signal("USR1") }.wait_line(/phased restart done/) }
      @tls.write("app", names: %w[localhost late])
      server.wait_line(/certificates were read for later workers/, count: 2)
      File.write(@tls.path("app.key"), "broken")
      File.delete(@tls.path("clients.pem"))
      server.signal("KILL", server.workers.first)
      server.wait_line(/worker ready/, count: 2 + restarts)
      late = RawClient.new(port(server), tls: @tls.context(client: "alice"), name: "late")
      assert_equal "hello", late.write(request("/")).read_response.body
      refused { client(server).write(request("/")).read_response }
      assert_equal 0, server.stop
    end
  end

  def test_certificates_of_clients
    @tls.write("alice", names: ["alice"], subject: "/C=DE/CN=Alice", use: "clientAuth")
    server = serve(verify_mode: "peer", ca: @tls.path("ca.pem"))
    seen = ->(context) { RawClient.new(port(server), tls: context).write(request("/env")).read_response.body }
    assert_equal "on|https|443|NONE|||", seen.call(@tls.context)
    assert_match(/\Aon\|https\|443\|SUCCESS\|CN=Alice,C=DE\|-----BEGIN CERTIFICATE-----\|.*Alice\z/,
                 seen.call(@tls.context(client: "alice")))
    stranger = TlsFiles.new(@tls.path("stranger"))
    stranger.write("mallory", use: "clientAuth")
    context = stranger.context(client: "mallory").tap { |one| one.ca_file = @tls.path("ca.pem") }
    refused { seen.call(context) }
    forced = serve(verify_mode: "force_peer", ca: @tls.path("ca.pem"))
    refused { client(forced).write(request("/")).read_response }
    both = RawClient.new(port(forced), tls: @tls.context(client: "alice"))
    assert_equal "hello", both.write(request("/")).read_response.body
  end

  # The application counts what a request costs; the number of the certificate's object tells whether it is a new one.
  COUNTING = <<~RUBY
    require "openssl"
    counter = Module.new do
      def new(...) = ($parsed = $parsed.to_i + 1) && super
    end
    OpenSSL::X509::Certificate.singleton_class.prepend(counter)
    run(->(env) { [200, {}, [[$parsed, env["puma.peercert"].object_id, env["SSL_CLIENT_S_DN"]].join(" ")]] })
  RUBY

  def test_the_certificate_of_a_client_is_parsed_once
    names = %w[alice bob]
    names.each { |name| @tls.write(name, subject: "/CN=#{name}", use: "clientAuth") }
    server = serve(rackup: COUNTING, verify_mode: "force_peer", ca: @tls.path("ca.pem"))
    seen = names.map do |name|
      client = RawClient.new(port(server), tls: @tls.context(client: name))
      Array.new(3) { client.write(request("/")).read_response.body.split }.uniq
    end
    assert_equal [1, 1], seen.map(&:size)
    assert_equal [%w[1 CN=alice], %w[2 CN=bob]], seen.map { |((parsed, _, name))| [parsed, name] }
  end

  def test_versions_of_tls
    server = serve
    old = serve(min_version: "1.3")
    two = OpenSSL::SSL::TLS1_2_VERSION
    context = -> { @tls.context.tap { |one| one.min_version = one.max_version = two } }
    assert_equal "hello", RawClient.new(port(server), tls: context.call).write(request("/")).read_response.body
    assert_raises(OpenSSL::SSL::SSLError, Errno::ECONNRESET) { RawClient.new(port(old), tls: context.call) }
    assert_equal "TLSv1.3", client(old).to_io.ssl_version
    chosen = @tls.context.tap { |one| one.alpn_protocols = %w[h3 http/1.1] }
    assert_equal "http/1.1", RawClient.new(port(server), tls: chosen).to_io.alpn_protocol
  end

  def test_the_certificate_for_development
    state = @tls.path("state")
    server = boot(rackup: TlsServer::APP, config: "workers 0\nbind \"tcp://127.0.0.1:0\"\ntls :dev",
                  env: { "XDG_STATE_HOME" => state })
    server.wait_line(/made an authority for development/)
    context = OpenSSL::SSL::SSLContext.new.tap do |one|
      one.ca_file = File.join(state, "chaton/tls/authority.pem")
      one.verify_mode = OpenSSL::SSL::VERIFY_PEER
      one.verify_hostname = true
    end
    answer = RawClient.new(port(server), tls: context).write(request("/env")).read_response.body
    assert_equal "on|https|443||||", answer
    assert_equal 0o600, File.stat(File.join(state, "chaton/tls/localhost.key")).mode & 0o777
    assert_equal 0, server.stop
    again = boot(config: "workers 0", args: %w[--tls dev], env: { "XDG_STATE_HOME" => state })
    assert_equal 200, RawClient.new(port(again), tls: context).write(request("/")).read_response.status
    refute_match(/made an authority/, again.log)
  end

  def test_no_request_fails_while_workers_are_replaced
    server = serve("workers 2")
    load = ClientLoad.new(port(server), tls: @tls.context)
    server.eventually("requests are answered") { load.answered > 50 }
    [1, 2].each do |count|
      server.signal("USR1")
      server.wait_line(/phased restart done/, count: count)
    end
    answered = load.answered
    server.eventually("requests are answered again") { load.answered > answered + 50 }
    assert_empty load.stop.failures
    assert_equal 0, server.stop
  end

  def test_a_full_restart_keeps_the_address_and_reads_new_certificates
    server = serve("workers 2")
    address = port(server)
    @tls.write("app", subject: "/CN=second")
    server.signal("USR2")
    server.wait_line(/ ready  listen=/, count: 2)
    assert_equal "/CN=second", subject(server)
    assert_equal "hello", client(server).write(request("/")).read_response.body
    assert_equal [address], server.log.scan(%r{ready  listen=\S*https://[^ "]+?:(\d+)}).flatten.map(&:to_i).uniq
    assert_equal 0, server.stop
  end
end
