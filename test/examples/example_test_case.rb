# frozen_string_literal: true

require "test_helper"
require "net/http"
require "support/server"

# An example as a person would start it: the real executable, the example's own config.ru, a free port. What the
# server writes goes to a scratch directory.
class ExampleTestCase < Minitest::Test
  include ServerTest

  EXAMPLES = File.expand_path("../../examples", __dir__)

  # @param name [String] folder below examples/
  # @return [Server]
  def boot_example(name, **options) = boot(rackup: nil, args: [File.join(EXAMPLES, name, "config.ru")], **options)

  def get(server, path) = request(server, Net::HTTP::Get.new(path))

  def post(server, path, body, type: "application/x-www-form-urlencoded")
    request(server, Net::HTTP::Post.new(path, "content-type" => type).tap { |post| post.body = body })
  end

  def request(server, request) = Net::HTTP.start("127.0.0.1", server.port) { |http| http.request(request) }
end
