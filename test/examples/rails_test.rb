# frozen_string_literal: true

require_relative "example_test_case"
require "support/tls_files"
require "support/web_socket"

class RailsExampleTest < ExampleTestCase
  JSON_TYPE = "application/json"
  CHANNEL = JSON.generate(channel: "MessagesChannel")

  def test_controller_view_and_model_work
    server = boot_rails
    created = post_message(server, "hi there")
    assert_equal "201", created.code
    page = get(server, "/")
    assert_equal "200", page.code
    assert_match(%r{<li>hi there</li>}, page.body)
    assert_match(/<form /, page.body)
    texts = JSON.parse(get(server, "/messages.json").body).map { |message| message["text"] }
    assert_equal ["hi there"], texts
    assert_equal "422", post_message(server, "").code
    assert_equal "404", get(server, "/nowhere").code
  end

  # Rails checks the origin of a form by its cookie and token.
  def test_a_form_with_its_token_is_accepted
    server = boot_rails
    page = get(server, "/")
    token = page.body[/name="authenticity_token" value="([^"]+)"/, 1]
    form = Net::HTTP::Post.new("/messages", "cookie" => page["set-cookie"][/[^;]+/])
    form.set_form_data("authenticity_token" => token, "message[text]" => "by form")
    response = request(server, form)
    assert_equal ["302", "http://127.0.0.1:#{server.port}/"], [response.code, response["location"]]
    assert_match(/<li>by form/, get(server, "/").body)
  end

  def test_a_web_socket_receives_posted_messages
    server = boot_rails
    socket = WebSocket.new(server.port, "/cable", protocol: "actioncable-v1-json")
    socket.read_json { |message| message["type"] == "welcome" }
    socket.write(JSON.generate(command: "subscribe", identifier: CHANNEL))
    socket.read_json { |message| message["type"] == "confirm_subscription" }

    post_message(server, "to all")
    received = socket.read_json { |message| message["message"] }
    assert_equal ["to all", CHANNEL], [received["message"]["text"], received["identifier"]]
  ensure
    socket&.close
  end

  def test_a_web_socket_over_tls_receives_posted_messages
    files = TlsFiles.new(File.join(File.dirname(database), "tls"))
    files.write("app")
    config = "bind \"tcp://127.0.0.1:0\"\nbind \"https://127.0.0.1:0\", **#{files.pair("app").inspect}"
    server = boot_rails(config: config)
    port = server.log[%r{https://[^ "]+?:(\d+)}, 1].to_i
    socket = WebSocket.new(port, "/cable", protocol: "actioncable-v1-json", tls: files.context)
    socket.read_json { |message| message["type"] == "welcome" }
    socket.write(JSON.generate(command: "subscribe", identifier: CHANNEL))
    socket.read_json { |message| message["type"] == "confirm_subscription" }
    post_message(server, "to all")
    assert_equal "to all", socket.read_json { |message| message["message"] }.dig("message", "text")
  ensure
    socket&.close
  end

  def test_in_production_nothing_has_to_stand_in_front
    files = TlsFiles.new(File.join(File.dirname(database), "tls"))
    files.write("app")
    tls = { "TLS_CERT" => files.path("app.pem"), "TLS_KEY" => files.path("app.key"), "HTTPS_PORT" => "0",
            "HTTP_PORT" => "0" }
    server = boot_rails(config: File.read(File.join(EXAMPLES, "rails/config/chaton.rb")), env: tls)
    page, robots = secure_get(server, files, "/", "/robots.txt")
    assert_equal ["200", "gzip", "max-age=31536000"],
                 [page.code, page["content-encoding"], page["strict-transport-security"]]
    # Without Rails: its answers have other headers.
    assert_equal ["200", "bytes", "max-age=31536000"],
                 [robots.code, robots["accept-ranges"], robots["strict-transport-security"]]
    plain = get(server, "/messages.json")
    assert_equal "301", plain.code
    assert_match(%r{\Ahttps://127\.0\.0\.1:\d+/messages\.json\z}, plain["location"])
    assert_equal 0, server.stop
  end

  def test_many_requests_at_once_share_the_database
    server = boot_rails
    clients = Array.new(8) { |n| Thread.new { Array.new(5) { |m| post_message(server, "#{n}.#{m}").code } } }
    codes = clients.flat_map(&:value)
    assert_equal({ "201" => 40 }, codes.tally)
  end

  def teardown
    super
    FileUtils.remove_entry(@scratch) if @scratch
  end

  private

  # Runs in production mode, with the database in the scratch directory.
  def boot_rails(env: {}, **options)
    env = { "RAILS_ENV" => "production", "DATABASE_URL" => "sqlite3:#{database}", **env }
    boot_example("rails", env: env, **options)
  end

  # @return [Array<Net::HTTPResponse>] as a client that accepts gzip gets them
  def secure_get(server, files, *paths)
    port = server.log[%r{https://[^ "]+?:(\d+)}, 1].to_i
    Net::HTTP.start("localhost", port, nil, ipaddr: "127.0.0.1", use_ssl: true, ca_file: files.path("ca.pem")) do |http|
      paths.map { |path| http.request(Net::HTTP::Get.new(path, "accept-encoding" => "gzip")) }
    end
  end

  def database = File.join(@scratch ||= Dir.mktmpdir("chaton-rails"), "app.sqlite3")

  def post_message(server, text)
    post(server, "/messages.json", JSON.generate(message: { text: text }), type: JSON_TYPE)
  end
end
