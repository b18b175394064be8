# frozen_string_literal: true

require "test_helper"
require "json"
require "rack/builder"
require "rack/mock"
require "zlib"

# The load generator only looks at the status, so this looks at the bodies.
class ArenaAppTest < Minitest::Test
  PATH = File.expand_path("../../../bench/web/apps/arena.ru", __dir__)

  # Loaded by the first test, because the application's own at_exit removes its files.
  # Rack 3 returns the application, Rack 2 an array with it.
  def self.app = @app ||= [*Rack::Builder.parse_file(PATH)].first

  def test_the_sum_of_query_and_body
    assert_equal "55", app.get("/baseline11?a=13&b=42").body
    assert_equal "75", app.post("/baseline11?a=13&b=42", input: "20").body
  end

  def test_json_has_the_asked_items_with_totals
    response = app.get("/json/5?m=3")
    found = JSON.parse(response.body)
    assert_equal 5, found["count"]
    assert_equal found["items"].map { |item| item["price"] * item["quantity"] * 3 }, found["items"].map { _1["total"] }
    refute_includes response.headers.keys.map(&:downcase), "content-encoding"
  end

  def test_json_is_compressed_for_a_client_that_accepts_it
    response = app.get("/json/50?m=6", "HTTP_ACCEPT_ENCODING" => "gzip, br")
    assert_equal "gzip", response["content-encoding"]
    assert_equal 50, JSON.parse(Zlib.gunzip(response.body))["items"].size
  end

  def test_bodies_are_counted_and_sent_back
    body = "x" * 200_000
    assert_equal "200000", app.post("/upload", input: body).body
    assert_equal body, app.post("/echo", input: body).body
  end

  def test_the_files_of_a_page
    sizes = Array.new(20) { |number| app.get("/static/#{number}").body.bytesize }
    assert_equal 842 * 1024, sizes.sum
    assert_equal [3 * 1024, 150 * 1024], sizes.minmax
  end

  private

  def app = Rack::MockRequest.new(self.class.app)
end
