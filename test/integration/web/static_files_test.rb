# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "support/http_client"
require "support/raw_client"
require "support/server"

# Files that are answered without the application. Only the engine's answers have an ETag here.
class StaticFilesTest < Minitest::Test
  include ServerTest

  APP = 'run ->(env) { [200, { "content-type" => "text/plain" }, ["application: " + env["PATH_INFO"]]] }'

  # `SETTINGS` are lines of config/application.rb.
  RAILS = <<~RUBY
    require "rails"
    require "action_controller/railtie"
    class Own
      def initialize(app) = @app = app
      def call(env) = @app.call(env)
    end
    class Site < Rails::Application
      config.root = __dir__
      config.eager_load = true
      config.cache_classes = true if config.respond_to?(:cache_classes=)
      config.secret_key_base = "0" * 64
      config.logger = Logger.new(nil)
      config.hosts.clear
      config.public_file_server.enabled = true
      config.public_file_server.headers = { "cache-control" => "public, max-age=60" }
      SETTINGS
    end
    Rails.application.initialize!
    Rails.application.routes.draw { root to: ->(_env) { [200, {}, ["application"]] } }
    run Rails.application
  RUBY

  def test_files_of_the_directory_are_answered_and_the_rest_reaches_the_application
    server = boot(rackup: APP, config: "workers 0\nweb { static 'public'\n static_index 'index.html' }") do |new|
      publish(new, "app.css" => "body{}", "index.html" => "<p>", ".env" => "secret")
    end
    style = server.get("/app.css")
    assert_equal ["body{}", "text/css"], [style.body, style.headers["content-type"]]
    assert style.headers["etag"]
    assert_equal ["<p>", "text/html"], [server.get("/").body, server.get("/").headers["content-type"]]
    assert_equal "application: /missing.css", server.get("/missing.css").body
    assert_equal "application: /.env", server.get("/.env").body
    assert_equal 0, server.stop
  end

  def test_no_path_leads_out_of_the_directory
    server = boot(rackup: APP, config: "workers 0\nweb { static 'public' }") do |new|
      publish(new, "app.css" => "body{}", "sub/app.css" => "body{}")
      new.write("secret.txt", "the secret")
      File.symlink("../secret.txt", new.path("public/link.txt"))
      File.symlink("..", new.path("public/up"))
    end
    assert_equal "body{}", server.get("/sub/app.css").body
    paths = outward("secret.txt") + %w[/link.txt /up/secret.txt /sub/../../secret.txt //secret.txt /../public/app.css]
    assert_operator paths.size, :>=, 60
    paths.each do |path|
      answer = RawClient.exchange(server.port, "GET #{path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
      assert_match(%r{\r\n\r\napplication: |\AHTTP/1\.1 400 }, answer, path)
      refute_match(/the secret|body\{\}|root:/, answer, path)
    end
    assert_equal 0, server.stop
  end

  # @return [Array<String>] paths of a file above the directory, in all spellings
  def outward(file)
    dots = %w[.. %2e%2e %2E. .%2e %252e%252e %c0%ae%c0%ae %ef%bc%8e%ef%bc%8e %00.. ..%00 ..;]
    slashes = %w[/ %2f %5c \\ %c0%af %252f]
    spellings = dots.product(slashes).map { |dot, slash| "/#{dot}#{slash}#{file}" }
    [*spellings, "/#{"../" * 40}etc/passwd", "/#{"%2e%2e/" * 40}etc/passwd", "///etc/passwd"]
  end

  def test_files_that_the_application_names_are_sent
    app = 'run ->(env) { [200, { "x-sendfile" => File.expand_path("." + env["PATH_INFO"], __dir__) }, []] }'
    server = boot(rackup: app, config: "workers 0\nweb { sendfile_roots 'storage' }") do |new|
      new.write("storage/report.txt", "report" * 20_000)
    end
    answer = server.get("/storage/report.txt")
    assert_equal [200, "report" * 20_000, nil], [answer.status, answer.body, answer.headers["x-sendfile"]]
    assert_equal 404, server.get("/config.ru").status
    assert_equal 0, server.stop
  end

  def test_plain_http_is_redirected
    config = "workers 0\nweb do\n static 'public'\n https_only true\n hsts 'max-age=60'\nend"
    server = boot(rackup: APP, config: config) { |new| publish(new, "app.css" => "body{}") }
    secure = { "X-Forwarded-Proto" => "https" }
    %w[/app.css /page].each do |path|
      plain = server.get(path)
      assert_equal [301, "https://127.0.0.1#{path}"], [plain.status, plain.headers["location"]]
      answer = server.get(path, headers: secure)
      assert_equal [200, "max-age=60"], [answer.status, answer.headers["strict-transport-security"]]
    end
    assert server.get("/app.css", headers: secure).headers["etag"]
    assert_equal 0, server.stop
  end

  def test_without_a_directory_the_application_answers
    server = boot(rackup: APP, config: "workers 0\nweb { static 'public' }")
    server.wait_line(%r{static: there is no directory /.*/public; its files are left to the application})
    assert_equal "application: /app.css", server.get("/app.css").body
    assert_equal 0, server.stop
  end

  def test_a_phased_restart_fails_no_request_for_a_file
    server = boot(rackup: APP, config: "workers 2\nweb { static 'public' }") { |new| publish(new, "a.txt" => "old") }
    load = ClientLoad.new(server.port, clients: 4, path: "/a.txt")
    server.eventually("some load") { load.answered > 1000 }
    publish(server, "a.txt.new" => "new")
    File.rename(server.path("public/a.txt.new"), server.path("public/a.txt"))
    server.signal("USR1")
    server.wait_line(/phased restart done/)
    server.eventually("answers of new workers", timeout_s: 60) { load.bodies["new"] > 1000 }
    load.stop
    assert_empty load.failures
    assert_equal %w[new old], load.bodies.keys.sort
    assert_equal 0, server.stop
  end

  # As certbot writes them below the directory.
  def test_files_of_excepted_paths_are_answered_over_plain_http
    web = "web { static 'public'\n https_only true\n https_only_except '/.well-known/*'\n hsts 'max-age=60' }"
    server = boot(rackup: APP, config: "workers 0\n#{web}") do |new|
      publish(new, ".well-known/acme-challenge/token" => "proof", "app.css" => "body{}")
    end
    proof = server.get("/.well-known/acme-challenge/token")
    assert_equal [200, "proof", nil], [proof.status, proof.body, proof.headers["strict-transport-security"]]
    plain = server.get("/app.css", headers: { "X-Forwarded-Host" => "evil.test" })
    assert_equal [301, "https://127.0.0.1/app.css"], [plain.status, plain.headers["location"]]
    secure = server.get("/app.css", headers: { "X-Forwarded-Proto" => "https, https" })
    assert_equal ["body{}", "max-age=60"], [secure.body, secure.headers["strict-transport-security"]]
    assert_equal 0, server.stop
  end

  def test_public_files_of_rails_are_answered_as_rails_would
    server = boot_rails
    robots = server.get("/robots.txt")
    assert_equal ["User-agent: *", "text/plain"], [robots.body, robots.headers["content-type"]]
    assert_equal "public, max-age=60", robots.headers["cache-control"]
    assert robots.headers["etag"]
    about = server.get("/about")
    assert_equal ["<p>about", "text/html"], [about.body, about.headers["content-type"]]
    assert about.headers["etag"]
    assert_equal "application", server.get("/").body
    assert_equal 0, server.stop
  end

  def test_rails_answers_by_itself_where_something_else_might_want_to
    own = "config.middleware.insert_before 0, Own"
    off = "config.public_file_server.enabled = false"
    [[own, "", 200], ["config.hosts << '127.0.0.1'", "", 200], ["", "web { static false }", 200],
     [off, "", 404]].each do |settings, config, status|
      server = boot_rails(settings, config)
      robots = server.get("/robots.txt")
      assert_equal [status, nil], [robots.status, robots.headers["etag"]], "#{settings}#{config}"
      assert_equal 0, server.stop
    end
  end

  def test_files_over_https_have_the_headers_of_rails_and_others_are_redirected
    server = boot_rails("config.force_ssl = true")
    assert_equal 301, server.get("/robots.txt").status
    secure = server.get("/robots.txt", headers: { "X-Forwarded-Proto" => "https" })
    assert_equal 200, secure.status
    assert secure.headers["etag"]
    assert_match(/max-age=\d+/, secure.headers["strict-transport-security"])
    assert_equal 0, server.stop
  end

  private

  def publish(server, files)
    files.each { |name, text| server.write("public/#{name}", text) }
  end

  def boot_rails(settings = "", config = "")
    needs_gems "bigdecimal", "nokogiri"
    boot(rackup: RAILS.sub("SETTINGS", settings), config: "workers 0\n#{config}") do |new|
      publish(new, "robots.txt" => "User-agent: *", "about.html" => "<p>about")
    end
  end
end
