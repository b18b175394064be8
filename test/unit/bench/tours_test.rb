# frozen_string_literal: true

require "test_helper"
require_relative "../../../bench/apps/suite"

# Which pages the visitors of bin/apps read.
class ToursTest < Minitest::Test
  Answer = Bench::Apps::Visitor::Answer

  # Serves pages of HTML by path, and remembers what was asked for.
  class Site
    attr_reader :answers, :paths

    def initialize(pages)
      @pages = pages
      @answers = []
      @paths = []
    end

    def get(path, name: "GET #{path}", **)
      @paths << path
      headers = { "content-type" => path.end_with?(".txt") ? "text/plain" : "text/html", "etag" => "W/\"1\"" }
      Answer.new(name, 200, headers, @pages.fetch(path, "")).tap { |answer| @answers << answer }
    end

    def head(path) = get(path, name: "HEAD #{path}")
  end

  # A tour that begins with one page.
  class Short < Bench::Apps::Tour
    STARTS = %w[/].freeze
    NOT_READ = %r{\A/logout|\A//}
    MADE_NOW = /(?!)/

    def call
      crawl
      @visitor.answers.map(&:name)
    end
  end

  def test_links_frames_and_absolute_addresses_are_followed_once
    site = Site.new("/" => '<a href="/a">A</a><a class="x" href="/a#b"></a><turbo-frame id="f" src="/frame">' \
                           '</turbo-frame><a href="http://app.test/b?c=1&amp;d=2"></a><img src="http://elsewhere.test/c">')
    assert_equal ["GET /", "GET /a", "GET /frame", "GET /b?c=1&d=2"], Short.new(site).call
  end

  def test_what_changes_something_is_not_followed
    site = Site.new("/" => '<a href="/logout"></a><a href="/gone" data-method="delete"></a><a href="//cdn.test/x"></a>')
    assert_equal ["GET /"], Short.new(site).call
  end

  def test_few_of_one_kind_are_read
    links = (1..20).map { |number| "<a href=\"/issues/#{number}\"></a>" }.join
    assert_equal 1 + Short::OF_KIND, Short.new(Site.new("/" => links)).call.grep_v(/HEAD|by etag/).size
  end

  def test_assets_with_digests_are_of_one_kind
    links = ("b".."t").map { |letter| "<link href=\"/assets/part-#{letter}f.css\">" }
    links << '<a href="/assets/a-1f.js">'
    assert_equal 2 + Short::OF_KIND, Short.new(Site.new("/" => links.join)).call.grep_v(/HEAD|by etag/).size
  end

  def test_the_stylesheet_of_redmine_is_found_with_and_without_a_digest
    { "/stylesheets/application.css?1678" => "/stylesheets/application.css",
      "/assets/application-1f2e3d4c.css" => "/assets/application-1f2e3d4c.css" }.each do |link, path|
      site = Site.new("/projects" => %(<link rel="stylesheet" href="#{link}" />))
      Bench::Apps::RedmineTour.new(site).send(:files)
      assert_equal ["a styled page", "a piece", "the end", "no piece", "no file", "a long address"],
                   site.answers.map(&:name)
      assert_equal path, site.paths[1]
    end
  end

  def test_a_file_is_asked_for_again
    site = Site.new("/" => '<a href="/a.txt"></a>')
    assert_equal ["GET /", "GET /a.txt", "HEAD /a.txt", "GET /a.txt by etag"], Short.new(site).call
  end

  def test_campfires_portraits_are_of_one_kind
    tour = Bench::Apps::CampfireTour.new(nil)
    one, other = %w[x y].map { |letter| "/users/#{letter * 40}--#{letter * 64}/avatar?v=1" }
    assert_equal tour.send(:kind, one), tour.send(:kind, other)
  end
end
