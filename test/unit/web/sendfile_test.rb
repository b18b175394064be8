# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require "fileutils"
require "chaton/errors"
require "chaton/native"
require "chaton/web/sendfile"

class SendfileTest < Minitest::Test
  # Notes what is logged.
  class Notes
    attr_reader :lines

    def initialize = @lines = []
    def warn(line, **) = @lines << line
  end

  # A body that knows whether it was closed.
  Body = Struct.new(:closed) do
    def close = self.closed = true
  end

  def setup
    @dir = File.realpath(Dir.mktmpdir)
    FileUtils.mkdir_p(File.join(@dir, "storage/a"))
    File.write(File.join(@dir, "storage/a/b c.txt"), "content")
    File.write(File.join(@dir, "secret"), "secret")
    File.symlink("../secret", File.join(@dir, "storage/link"))
    @log = Notes.new
  end

  def teardown = FileUtils.rm_rf(@dir)

  def test_the_file_that_a_header_names_is_the_body
    body = Body.new
    [["X-Sendfile", File.join(@dir, "storage/a/b c.txt")], ["x-accel-redirect", "/a/b%20c.txt?x"]].each do |name, value|
      status, headers, file = answer(name => value, "Content-Length" => "0", "x-own" => "1", body: body)
      assert_equal [200, { "x-own" => "1" }], [status, headers]
      assert_equal File.join(@dir, "storage/a/b c.txt"), file.to_path
      file.close
      assert body.closed
    end
  end

  def test_a_file_that_is_replaced_by_a_link_to_another_one_is_not_sent
    path = File.join(@dir, "storage/a/b c.txt")
    _, _, file = answer("X-Sendfile" => path, body: Body.new)
    File.symlink("../../secret", "#{path}.new")
    File.rename("#{path}.new", path)
    assert_equal "content", file.enum_for.to_a.join
    file.close
    assert_equal 404, answer("X-Sendfile" => path, body: Body.new).first
  end

  def test_the_root_directory_of_the_machine_has_all_files
    secret = File.join(@dir, "secret")
    both = { "X-Sendfile" => secret, "X-Accel-Redirect" => "/internal" }
    _, headers, file = Chaton::Web::Sendfile.new(->(_env) { [200, both, []] }, ["/"], log: @log).call({})
    assert_equal [{}, secret], [headers, file&.to_path]
  end

  def test_files_elsewhere_are_not_sent
    inside = File.join(@dir, "storage")
    { "X-Sendfile" => [File.join(@dir, "secret"), "#{inside}/../secret", "#{inside}/link", "#{inside}/missing", inside,
                       "a/b c.txt", "", "a\0b"],
      "X-Accel-Redirect" => ["/../secret", "/%2e%2e/secret", "/link", "/missing", "/", "/%zz", "/a%00b"] }
      .each do |name, values|
      values.each do |value|
        body = Body.new
        assert_equal 404, answer(name => value, body: body).first, value.inspect
        assert body.closed
      end
    end
    assert_equal 15, @log.lines.size
  end

  def test_other_answers_are_unchanged
    given = [200, { "content-length" => "2" }, ["hi"]]
    assert_same given, Chaton::Web::Sendfile.new(->(_env) { given }, [@dir], log: @log).call({})
    assert_raises(Chaton::ConfigError) { Chaton::Web::Sendfile.new(nil, [File.join(@dir, "none")], log: @log) }
  end

  private

  def answer(body:, **headers)
    app = ->(_env) { [200, headers.transform_keys(&:to_s), body] }
    Chaton::Web::Sendfile.new(app, [File.join(@dir, "storage")], log: @log).call({})
  end
end
