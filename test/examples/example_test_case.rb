# frozen_string_literal: true

require "test_helper"
require "net/http"
require "open3"
require "support/server"

# Runs an example with the real executable, its own config.ru and a free port. The server writes its files to a scratch
# directory.
class ExampleTestCase < Minitest::Test
  include ServerTest

  EXAMPLES = File.expand_path("../../examples", __dir__)

  # @param name [String] folder below examples/
  # @return [Server]
  def boot_example(name, **options) = boot(rackup: nil, args: [File.join(EXAMPLES, name, "config.ru")], **options)

  # Boots the example with its own configuration, in a scratch directory, where it stores its data.
  #
  # @param name [String] folder below examples/
  # @return [Server]
  def boot_whole_example(name, env: {})
    rackup, config = %w[config.ru config/chaton.rb].map { |file| File.read(File.join(EXAMPLES, name, file)) }
    boot(rackup: rackup, config: config, env: { "ADMIN_BIND" => "unix://admin.sock", **env }) do |server|
      FileUtils.cp_r(File.join(EXAMPLES, name, "app"), server.dir)
    end
  end

  # Runs a `chaton` command in a server's directory.
  #
  # @return [String] its output
  def command(server, *words)
    out, err, status = Open3.capture3(RbConfig.ruby, "-I", Server::LIB, Server::EXE, *words, chdir: server.dir)
    assert_equal ["", 0], [err, status.exitstatus], words.inspect
    out
  end

  def get(server, path) = request(server, Net::HTTP::Get.new(path))

  def post(server, path, body, type: "application/x-www-form-urlencoded")
    request(server, Net::HTTP::Post.new(path, "content-type" => type).tap { |post| post.body = body })
  end

  def request(server, request) = Net::HTTP.start("127.0.0.1", server.port) { |http| http.request(request) }
end
