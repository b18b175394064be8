# frozen_string_literal: true

require "test_helper"
require "cgi"
require "support/event_client"
require "support/redis_server"
require "support/server"

# Event streams of a Rails application: controllers, the element of Turbo, and models.
class RailsEventStreamsTest < Minitest::Test
  include ServerTest

  APP = <<~'RUBY'
    require "logger"
    require "active_record/railtie"
    require "action_controller/railtie"
    require "action_view/railtie"
    require "chaton"
    require "rack/deflater"
    require "rack/lint"

    class App < Rails::Application
      config.root = __dir__
      config.eager_load = false
      config.secret_key_base = "0" * 64
      config.hosts.clear
      config.logger = ActiveSupport::Logger.new($stderr)
      config.middleware.insert_before 0, Rack::Deflater
    end
    ENV["DATABASE_URL"] = "sqlite3:#{__dir__}/lines.db"
    class ApplicationController < ActionController::Base; end
    class EventsController < ApplicationController
      before_action { head :forbidden if params[:id] == "secret" }
      after_action { raise "after" if params[:id] == "bad" }
      def show = render_event_stream("orders/#{params[:id]}")
    end
    class ApiController < ActionController::API
      def show = render_event_stream("orders/#{params[:id]}", max_age: 60)
      def twice = [show, show]
    end
    class PageController < ApplicationController
      before_action { Chaton.broadcast("orders/7", "while the page is made") if params[:say] }
      def show
        render inline: '<%= event_stream_source("/events/7?a=1", params[:name] || "orders/7") %>'
      end
      def change
        Line.transaction do
          line = Line.create!(text: "<b>")
          line.update!(text: "gone") if params[:rolled_back]
          Chaton.broadcast("orders/7", "said with #{params.keys.first}") if params[:said]
          Line.transaction(requires_new: true) do
            Chaton.broadcast("orders/7", "said in a part that is rolled back") if params[:said]
            raise ActiveRecord::Rollback
          end
          raise ActiveRecord::Rollback if params[:rolled_back]
        end
        Line.last.update!(text: "new") if params[:more]
        Line.last.destroy! if params[:more]
        head :ok
      end
    end
    App.initialize!
    ActiveRecord::Migration.suppress_messages do
      ActiveRecord::Schema.define { create_table(:lines) { |t| t.string :text } }
    end
    class Line < ActiveRecord::Base
      broadcasts_events_to ->(_line) { "orders/7" }, target: %(li"nes)
    end
    Rails.application.routes.draw do
      get "/events/:id", to: "events#show"
      get "/api/:id", to: "api#show"
      get "/twice/:id", to: "api#twice"
      get "/page", to: "page#show"
      get "/change", to: "page#change"
    end
    run Rails.application
  RUBY
  PARTIAL = %(<li id="<%= dom_id(line) %>"><%= line.text %></li>\n)

  def setup
    needs_gems "bigdecimal", "nokogiri"
  end

  def test_a_controller_renders_a_stream_after_it_has_authorized
    server = boot_rails
    clients = %w[/events/7 /api/7].map do |path|
      EventClient.new(server.port, path, headers: { "Accept-Encoding" => "gzip" }).connect
    end
    clients.each do |client|
      status, headers = client.head
      assert_equal [200, "no-cache, no-transform", "no", nil, nil, nil],
                   [status, *headers.values_at("cache-control", "x-accel-buffering", "etag", "content-encoding",
                                               "content-length")]
      assert_match(%r{\Atext/event-stream}, headers["content-type"])
    end
    server.get("/page?say=1")
    assert_equal([["while the page is made"]] * 2, clients.map { |client| client.take(1) })
    assert_equal [403, 500, 500], %w[/events/secret /events/bad /twice/7].map { |path| server.get(path).status }
    head = RawClient.open(server.port) { |raw|
      raw.write("HEAD /events/7 HTTP/1.1\r\nHost: h\r\n\r\n").send(:read_head)
    }
    assert_equal 200, head.first
    assert_equal 0, server.stop
  end

  def test_what_is_said_between_page_and_subscription_arrives
    server = boot_rails
    # The second page comes from a process that has used event streams before.
    2.times do
      source = source_of(server.get("/page?say=1"))
      server.get("/page?say=1")
      client = EventClient.new(server.port, source).connect
      assert_equal ["while the page is made"] * 2, client.take(2)
      server.get("/change")
      assert_match(/action="append"/, client.next.data)
      client.close
    end
    # What the page shows is not said again, and a position is for its own names and permits nothing.
    source = source_of(server.get("/page"))
    client = EventClient.new(server.port, source).connect
    server.get("/page?say=1")
    assert_equal "while the page is made", client.next.data
    foreign = source_of(server.get("/page?name=#{CGI.escape('<"&name')}"))
    assert_match(%r{\A/events/7\?a=1&position=[\w-]+&gap=refresh\z}, foreign)
    assert_equal "gap", EventClient.new(server.port, foreign).connect.next.type
    thief = EventClient.new(server.port, "/events/secret")
    thief.last_id = source[/position=([\w-]+)/, 1]
    assert_equal 403, thief.connect.head.first
    assert_equal 0, server.stop
  end

  def test_a_model_sends_its_changes_once_they_are_committed
    server = boot_rails
    client = EventClient.new(server.port, "/events/7").connect
    assert_equal 200, server.get("/change?rolled_back=1").status
    assert_equal 200, server.get("/change?more=1").status
    inserted, replaced, removed = client.take(3)
    assert_match(%r{\A<turbo-stream action="append" target="li&quot;nes"><template><li id="line_\d+">&lt;b&gt;</li>},
                 inserted)
    assert inserted.end_with?("</li>\n</template></turbo-stream>")
    assert_match(%r{\A<turbo-stream action="replace" target="line_\d+"><template><li id="line_\d+">new</li>}, replaced)
    assert_match(%r{\A<turbo-stream action="remove" target="line_\d+"></turbo-stream>\z}, removed)
    assert_equal 0, server.stop
  end

  def test_what_is_said_in_a_transaction_is_sent_once_it_is_committed
    server = boot_rails
    client = EventClient.new(server.port, "/events/7").connect
    assert_equal 200, server.get("/change?rolled_back=1&said=1").status
    assert_equal 200, server.get("/change?said=1").status
    assert_equal 200, server.get("/page?say=1").status
    *changes, last = client.take(3)
    assert_equal ["said with said", true], [changes.grep(/said/).first, changes.grep(/append/).one?]
    assert_equal "while the page is made", last
    assert_equal 0, server.stop
  end

  def test_pages_are_rendered_while_redis_is_away_and_get_what_is_said_meanwhile
    redis = RedisServer.new.start
    servers = Array.new(2) { boot_rails("live { store \"#{redis.url}\" }") }
    used, new = servers
    EventClient.new(used.port, "/events/7").connect
    redis.kill
    source = source_of(used.get("/page?say=1"))
    # One that has not reached it before does not know where the messages are.
    page = new.get("/page")
    assert_match(%r{src="/events/7\?a=1&amp;gap=refresh"}, page.body)
    assert_match(/the page gets what is said once it has subscribed: redis:/, new.log)
    begins = -> { EventClient.new(new.port, "/events/7").connect }
    early = begins.call
    assert_equal [200, "text/event-stream"], [early.head.first, early.head.last["content-type"][/[^;]+/]]
    assert_match(/\Aretry: [234]\d{3}\n\n\z/, early.body, "the browser comes back")
    new.wait_line(/event streams cannot begin now: redis:/)
    redis.start
    used.wait_line(/event streams can be read again/)
    client = EventClient.new(used.port, source).connect
    assert_equal "while the page is made", client.next.data
    new.eventually("one begins there, too") { begins.call.head.last["transfer-encoding"] == "chunked" }
    servers.each { |server| assert_equal 0, server.stop }
  ensure
    redis&.close
  end

  private

  def boot_rails(live = "")
    config = "workers 0\nshutdown_timeout_s 2\n#{live}"
    boot(rackup: APP, config: config) { |server| server.write("app/views/lines/_line.html.erb", PARTIAL) }
  end

  def source_of(page)
    assert_equal 200, page.status
    tag = page.body.match(%r{\A<turbo-stream-source src="([^"<>]+)"></turbo-stream-source>\s*\z})
    assert tag, page.body
    CGI.unescapeHTML(tag[1])
  end
end
