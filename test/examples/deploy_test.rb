# frozen_string_literal: true

require_relative "example_test_case"
require "json"
require "shellwords"
require "socket"
require "tmpdir"
require "yaml"
require "chaton/config"
require "support/admin_client"

# Holds the files of examples/deploy against a server that runs with the configuration beside them.
class DeployExampleTest < ExampleTestCase
  DIR = File.join(EXAMPLES, "deploy")
  OWN_CONFIG = File.read(File.join(DIR, "config/chaton.rb"))
  # The worker loads the application, so that the supervisor can be asked meanwhile.
  CONFIG = "workers 1\npreload false\n#{OWN_CONFIG}".freeze
  # The application loads when that file exists.
  APP = "sleep 0.01 until File.exist?(\"load\")\n#{Server::HELLO}".freeze
  WAIT_S = 60
  TOKEN = "0123456789abcdef"

  # What the kubelet sends: the address of the pod is the host.
  HOSTS = ["10.42.0.7:%d", "[fd00::7]:%d"].freeze
  KUBELET = { "User-Agent" => "kube-probe/1.35", "Accept" => "*/*" }.freeze

  def test_the_probes_of_kubernetes_are_answered
    env = pod["env"].to_h { |one| [one["name"], one["value"] || TOKEN] }
    assert_equal [port("http").to_s, "tcp://0.0.0.0:#{port("admin")}"], env.values_at("PORT", "ADMIN_BIND")
    server = launch(rackup: APP, config: CONFIG, env: { **env, "PORT" => "0", "ADMIN_BIND" => "tcp://0.0.0.0:0" })
    assert_equal [[503, 200, 503]], probed(server)
    server.write("load", "")
    server.eventually("all probes are answered 200", timeout_s: WAIT_S) { probed(server) == [[200, 200, 200]] }
    assert_equal [401, 200], ["wrong", TOKEN].map { |token| scrape(server, token) }
  end

  def test_kubernetes_waits_for_the_stop
    stop_delay_s = pod["env"].find { |one| one["name"] == "STOP_DELAY_S" }["value"].to_i
    assert_operator documents[0].dig("spec", "template", "spec", "terminationGracePeriodSeconds"), :>,
                    stop_delay_s + shutdown_timeout_s
    assert_equal pod["ports"].map { |one| one["name"] } - ["admin"],
                 documents[1].dig("spec", "ports").map { |one| one["targetPort"] }
  end

  def test_systemd_starts_reloads_and_stops_it
    assert_equal ["notify", "/usr/bin/bundle exec chaton"], unit.values_at("Type", "ExecStart")
    assert_operator unit["TimeoutStopSec"].to_i, :>, shutdown_timeout_s
    with_manager do |manager, path|
      env = unit["Environment"].split.to_h { |pair| pair.sub("/srv/shop/", "").split("=", 2) }
      env.update("PORT" => "0", "NOTIFY_SOCKET" => path, "WATCHDOG_USEC" => "400000")
      server = launch(config: CONFIG, env: env) { |one| FileUtils.mkdir_p(one.path("tmp")) }
      notified(manager, /READY=1/)
      server.eventually("the check after the start succeeds", timeout_s: WAIT_S) { checked_after_start(server) == 200 }
      notified(manager, /WATCHDOG=1/)
      assert reload(server)
      notified(manager, /RELOADING=1/)
      notified(manager, /READY=1/)
      server.write("config.ru", "raise 'broken'")
      refute reload(server)
      assert_equal 0, server.stop
    end
  end

  # Where systemd is installed it reads the unit.
  def test_systemd_knows_every_line_of_the_unit
    assert_operator unit.size, :>, 5
    return unless system("which", "systemd-analyze", out: File::NULL)

    out, = Open3.capture2e("systemd-analyze", "verify", "--man=no", File.join(DIR, "chaton.service"))
    assert_empty out.lines.grep(/chaton\.service:\d+:/)
  end

  def test_the_container_file_checks_its_own_server
    file = File.read(File.join(DIR, "Containerfile"))
    env = file[/^ENV (.+)$/, 1].split.to_h { |pair| pair.split("=", 2) }
    assert_equal [env["PORT"], "SIGTERM"], [file[/^EXPOSE (\d+)$/, 1], file[/^STOPSIGNAL (\w+)$/, 1]]
    assert_equal %w[bundle exec chaton], JSON.parse(file[/^CMD (.+)$/, 1])
    server = launch(rackup: APP, config: CONFIG, env: { "PORT" => "0", "ADMIN_BIND" => "tcp://127.0.0.1:0" })
    check = JSON.parse(file[/^HEALTHCHECK .*CMD (.+)$/, 1])
    check.first.replace(RbConfig.ruby)
    assert_includes check.last, "9394"
    assert_includes OWN_CONFIG, "9394"
    check.last.sub!("9394", admin_port(server).to_s)
    refute system(*check), "the application is not loaded yet"
    server.write("load", "")
    server.eventually("the container is healthy", timeout_s: WAIT_S) { system(*check) }
  end

  def test_kamal_asks_a_port_that_is_served
    kamal = YAML.safe_load_file(File.join(DIR, "kamal.yml"))
    port = kamal.dig("proxy", "app_port")
    assert_equal port.to_s, kamal.dig("env", "clear", "PORT")
    assert_path_exists File.join(DIR, kamal.dig("builder", "dockerfile"))
    assert_equal "/up", kamal.dig("proxy", "healthcheck", "path")
    %w[stop_timeout drain_timeout].each { |name| assert_operator kamal[name], :>, shutdown_timeout_s, name }
    *chaton, role = kamal.dig("servers", "job", "cmd").split
    assert_equal [%w[bundle exec chaton], "--jobs"], [chaton, role]
    help, = Open3.capture2e(RbConfig.ruby, "-I", Server::LIB, Server::EXE, "--help")
    assert_match(/ --(\[no-\])?jobs\b/, help)
  end

  private

  def documents = @documents ||= YAML.load_stream(File.read(File.join(DIR, "kubernetes.yaml")))
  def pod = documents[0].dig("spec", "template", "spec", "containers", 0)
  def port(name) = pod["ports"].find { |one| one["name"] == name }["containerPort"]
  def shutdown_timeout_s = Chaton::Config::Options[:shutdown_timeout_s].default

  # @return [Array<Array<Integer>>] the statuses of the start, liveness and readiness probe, once if all hosts agree
  def probed(server)
    HOSTS.map do |host|
      %w[startupProbe livenessProbe readinessProbe].map do |name|
        path, port = pod.dig(name, "httpGet").values_at("path", "port")
        assert_equal "admin", port
        asked(server, path, host: format(host, port("admin")), headers: KUBELET).status
      end
    end.uniq
  end

  def scrape(server, token)
    asked(server, "/metrics", headers: { "Authorization" => "Bearer #{token}" }).status
  end

  def asked(server, path, **options) = AdminClient.new(admin_port(server)).get(path, **options)

  # @return [Integer] once the endpoint listens
  def admin_port(server)
    server.eventually("the admin endpoint listens", timeout_s: WAIT_S) do
      server.status.dig("admin", "listen")&.first&.slice(/\d+\z/)&.to_i&.nonzero?
    rescue SystemCallError, Chaton::Error
      nil # The supervisor does not listen yet.
    end
  end

  # @return [Hash{String=>String}] the settings of the service
  def unit
    @unit ||= File.readlines(File.join(DIR, "chaton.service"), chomp: true).grep(/\A\w+=/)
      .to_h { |line| line.split("=", 2) }
  end

  # @return [Integer] what curl is answered; with --fail anything but 2xx fails the start
  def checked_after_start(server)
    curl, *options, path, url = unit["ExecStartPost"].shellsplit
    assert_equal ["/usr/bin/curl", true, "--unix-socket"], [curl, options.include?("--fail"), options.last]
    AdminClient.new(server.path(path.delete_prefix("/srv/shop/"))).get(url.delete_prefix("http://localhost")).status
  end

  # @return [Boolean] whether `systemctl reload` would succeed
  def reload(server)
    bundle, exec, name, *arguments = unit["ExecReload"].shellsplit
    assert_equal ["/usr/bin/bundle", "exec", "chaton"], [bundle, exec, name]
    system(RbConfig.ruby, "-I", Server::LIB, Server::EXE, *arguments, chdir: server.dir, out: File::NULL,
                                                                      err: File::NULL)
  end

  def with_manager
    Dir.mktmpdir do |dir|
      path = File.join(dir, "notify")
      Socket.open(:UNIX, :DGRAM) do |manager|
        manager.bind(Addrinfo.unix(path, :DGRAM))
        yield manager, path
      end
    end
  end

  def notified(manager, pattern)
    loop do
      raise Server::Late, "no notification #{pattern.source}" unless manager.wait_readable(WAIT_S)
      return if manager.recv(4096).match?(pattern)
    end
  end
end
