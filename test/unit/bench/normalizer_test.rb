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

  def test_addresses_that_expire_and_times_of_cookies_make_no_difference
    disk = "http://app.test/rails/active_storage/disk"
    one, other = %w[YWJj eHl6].map.with_index do |signed, at|
      call(HTML.merge("set-cookie" => "a=#{at}; path=/; expires=Wed, 28 Nov 2046 09:36:3#{at} GMT; httponly",
                      "location" => "#{disk}/#{signed}--#{signed.unpack1("H*") * 8}/a.txt"),
           "<a href=\"/session/transfers/#{signed}--#{"a" * 64}\" data-updated-at=\"179000000000#{at}\">")
    end
    assert_equal one, other
    assert_includes one["headers"]["set-cookie"], "path=/; expires=TIME; httponly"
    assert_equal "#{disk}/SIGNED/a.txt", one["headers"]["location"]
  end

  def test_a_compressed_body_is_compared_by_what_is_in_it
    zipped = HTML.merge("content-encoding" => "gzip")
    one, other = %w[abc xyz].map { |token| Zlib.gzip("<meta name=\"csrf-token\" content=\"#{token}\" />") }
    assert_equal call(zipped, one), call(zipped, other)
    refute_equal call(zipped, one), call(zipped, Zlib.gzip("else"))
  end

  def test_only_files_that_were_stored_meanwhile_may_differ_in_their_time
    times = [-60, 60, 61].map { |seconds| (Bench::Apps::Normalizer::BEGUN + seconds).httpdate }
    old, *fresh = times.map { |time| call(HTML.merge("last-modified" => time), "")["headers"]["last-modified"] }
    assert_equal [times.first, "NEW", "NEW"], [old, *fresh]
  end

  def test_times_inside_of_pdf_files_make_no_difference
    type = { "content-type" => "application/pdf" }
    one, other = %w[20260101000000 20260202000000].map do |time|
      call(type, "%PDF \xFF /CreationDate (D:#{time}+00'00') /ID [<#{time}>] \xFE")
    end
    assert_equal one, other
  end

  def test_the_piece_that_was_asked_for_may_come_instead_of_the_whole_file
    asked = { range: "bytes=2-4" }
    whole = call(HTML, "0123456789", **asked)
    { ["bytes 2-4/10", "234", asked] => true, ["bytes 2-4/10", "23", asked] => false,
      ["bytes 2-4/11", "234", asked] => false, ["bytes 1-3/10", "123", asked] => false,
      ["bytes 2-4/10", "234", {}] => false }.each do |(sent, body, range), same|
      piece = call(HTML.merge("content-range" => sent), body, status: 206, **range)
      assert_equal same, Bench::Apps::Normalizer.piece?(whole, piece), "#{sent} #{body} #{range}"
    end
    refute Bench::Apps::Normalizer.piece?(call(HTML, "0123456789"), whole)
  end

  private

  def call(headers, body, status: 200, range: nil)
    Bench::Apps::Normalizer.call(Bench::Apps::Visitor::Answer.new("GET /", status, headers, body.b, range))
  end
end
