# frozen_string_literal: true

require "test_helper"
require_relative "../../../bench/apps/normalizer"
require_relative "../../../bench/apps/visitor"

# What bin/apps takes for the same response, and what for another.
class NormalizerTest < Minitest::Test
  HTML = { "content-type" => "text/html; charset=utf-8", "etag" => "W/\"1\"", "x-request-id" => "a" }.freeze

  def test_tokens_times_and_framing_make_no_difference
    one = call(HTML.merge("set-cookie" => "_session=abc; path=/", "content-length" => "9"),
               "<meta name=\"csrf-token\" content=\"abc==\" /> 3 minutes ago, key=#{"a" * 40}")
    other = call(HTML.merge("set-cookie" => "_session=x; path=/", "transfer-encoding" => "chunked", "etag" => "W/\"2\"",
                            "x-request-id" => "b", "date" => "now"),
                 "<meta name=\"csrf-token\" content=\"xyz==\" /> about 1 hour ago, key=#{"b" * 40}")
    assert_equal one.merge("body" => ""), other.merge("body" => "")
    refute_includes one["body"], "abc=="
    assert_includes one["body"], "SPAN ago"
  end

  def test_what_a_server_could_break_is_a_difference
    base = call(HTML, "größe")
    { [HTML.except("x-request-id"), "größe"] => "x-request-id: \"present\", nil",
      [HTML.merge("etag" => "\"1\""), "größe"] => "etag: \"weak\", ",
      [HTML.merge("set-cookie" => "a=1; path=/; httponly"),
       "größe"] => "set-cookie: nil, \"a=VALUE; path=/; httponly\"",
      [HTML, "gr\xC3\xB6ss"] => "body at 4: " }.each do |(headers, body), what|
      found = Bench::Apps::Normalizer.difference(base, call(headers, body))
      assert_equal 1, found.size, found.inspect
      assert_operator found.first, :start_with?, what
    end
    assert_equal ["status 200, 500"], Bench::Apps::Normalizer.difference(base, call(HTML, "größe", status: 500))
  end

  def test_times_inside_of_pdf_files_make_no_difference
    type = { "content-type" => "application/pdf" }
    one, other = %w[20260101000000 20260202000000].map do |time|
      call(type, "%PDF \xFF /CreationDate (D:#{time}+00'00') /ID [<#{time}>] \xFE")
    end
    assert_equal one, other
  end

  private

  def call(headers, body, status: 200)
    Bench::Apps::Normalizer.call(Bench::Apps::Visitor::Answer.new("GET /", status, headers, body.b))
  end
end
