# frozen_string_literal: true

require_relative "../tour"

module Bench
  module Apps
    # What a visitor of Campfire does: reads 200 pages, and writes by forms; and what a robot does.
    class CampfireTour < Tour
      PASSWORD = "a pass phrase"
      # The robot of campfire/seed.rb.
      ROBOT = "2-bbbbbbbbbbbb"
      LISTED = %w[/ /rooms /rooms/1 /rooms/3 /rooms/12 /rooms/13 /rooms/99 /users/me/sidebar /users/me/profile /users/1
                  /users/5 /searches /searches?q=discount /searches?q=%F0%9F%90%88 /account/edit /account/users
                  /account/bots /account/bots/new /account/bots/2/edit /account/custom_styles/edit /account/logo
                  /account/logo?size=small /autocompletable/users /autocompletable/users?query=No1
                  /autocompletable/users.json?room_id=1 /rooms/opens/new /rooms/closeds/new /rooms/directs/new
                  /rooms/opens/3/edit /rooms/closeds/12/edit /rooms/directs/13/edit /rooms/1/involvement
                  /users/me/push_subscriptions /webmanifest /webmanifest.json /service-worker /service-worker.js /up
                  /qr_code/aHR0cDovL2FwcC50ZXN0Lw== /join/abcd-efgh-ijkl /first_run /session/new /robots.txt /404.html
                  /nowhere /rooms/1/messages/99999 /rooms/1/refresh?since=0].freeze
      NUMBERED = (1..12).flat_map do |number|
        ["/messages/#{number * 30}/boosts", "/messages/#{number * 30}/boosts/new", "/rooms/1/messages/#{number}",
         "/rooms/1/messages/#{number}/edit", *("/rooms/#{number}/messages?before=#{(number * 40) - 30}" if number < 6)]
      end
      STARTS = [*LISTED, *NUMBERED].freeze
      # They end the session, their answer is the moment's, or there is a time in their address.
      NOT_READ = %r{\A/session|\A/qr_code/|\A//|/transfers/|\A/rails/active_storage/disk}
      # None.
      MADE_NOW = /(?!)/
      TURBO = { Accept: "text/vnd.turbo-stream.html, text/html" }.freeze
      CONTENT = "x" * 70_000

      def call
        log_in
        crawl
        files
        message
        attachment
        rooms
        account
        refused
        @visitor.form("/session", { "_method" => "delete", "authenticity_token" => token("/rooms/1") }, name: "log out")
        @visitor.get("/rooms/1", name: "logged out")
        robot
        @visitor.answers
      end

      private

      def log_in
        @visitor.get("/rooms/3", name: "not logged in")
        given = { "authenticity_token" => token("/session/new"), "email_address" => "admin@example.org" }
        @visitor.form("/session", { **given, "password" => "wrong" }, name: "wrong password")
        again = { "authenticity_token" => @visitor.answers.last.token, "password" => PASSWORD }
        @visitor.form("/session", { **given, **again }, name: "log in")
      end

      # The digest of a person is in the name of a portrait.
      def kind(link) = super(link.sub(%r{\A/users/[^/]{20,}/}, "/users/N/"))

      # Pieces of a file, and compressed pages: config.ru has Rack::Deflater.
      def files
        path = @visitor.get("/rooms/1").body[%r{/assets/application-\h+\.js}].to_s
        @visitor.get(path, name: "a piece", Range: "bytes=100-199")
        @visitor.get(path, name: "no piece", Range: "bytes=99999999-")
        @visitor.get(path, name: "a file, compressed", "Accept-Encoding": "gzip")
        @visitor.get("/rooms/1", name: "a page, compressed", "Accept-Encoding": "gzip")
        @visitor.get("/assets/none.css", name: "no file")
        @visitor.get("/searches?#{"f[]=status&" * 100}", name: "a long address")
      end

      def message
        csrf = { "X-CSRF-Token": token("/rooms/1"), **TURBO }
        fields = { "message[body]" => "<div>Größe × 2 \u{1F431}</div>", "message[client_message_id]" => "tour-1" }
        created = @visitor.form("/rooms/1/messages", fields, name: "new message", **csrf)
        number = created.body[%r{/rooms/1/messages/(\d+)/edit}, 1]
        path = "/rooms/1/messages/#{number}"
        @visitor.get("#{path}/edit", name: "edit the message")
        change = { "_method" => "patch", "message[body]" => "<div>Smaller &amp; <em>better</em></div>" }
        @visitor.form(path, change, name: "edited message", **csrf)
        @visitor.get(path, name: "the edited message")
        boosts(number, csrf)
        @visitor.form(path, { "_method" => "delete" }, name: "delete", **csrf)
        @visitor.get(path, name: "the deleted message")
        @visitor.get("/rooms/1", name: "the room")
      end

      def boosts(message, csrf)
        path = "/messages/#{message}/boosts"
        @visitor.form(path, { "boost[content]" => "\u{1F389}" }, name: "boost", **csrf)
        boost = @visitor.get(path, name: "boosts").body[%r{boosts/(\d+)"}, 1]
        @visitor.form("#{path}/#{boost}", { "_method" => "delete" }, name: "delete the boost", **csrf)
        @visitor.get(path, name: "no boosts")
      end

      def attachment
        csrf = { "X-CSRF-Token": token("/rooms/3"), **TURBO }
        created = @visitor.multipart("/rooms/3/messages", { "message[client_message_id]" => "tour-2" }, **csrf,
                                     files: { "message[attachment]" => ["größe.txt", CONTENT] }, name: "new file")
        path = CGI.unescapeHTML(created.body[%r{/rails/active_storage/blobs/redirect/[^"]+}].to_s)
        stored = @visitor.get(path, name: "where the file is").location
        @visitor.get(stored, name: "the file")
        @visitor.get(stored, name: "a piece of the file", Range: "bytes=10-19")
        @visitor.head(stored, name: "the file's head")
      end

      def rooms
        csrf = { "X-CSRF-Token": token("/rooms/opens/new"), **TURBO }
        @visitor.form("/rooms/opens", { "room[name]" => "Fresh" }, name: "new room", **csrf)
        path = @visitor.answers.last.location
        @visitor.get(path, name: "the new room")
        @visitor.form(path.sub("rooms", "rooms/opens"), { "_method" => "patch", "room[name]" => "Fresher" },
                      name: "renamed room", **csrf)
        people = [["room[name]", "Few"], ["user_ids[]", "1"], ["user_ids[]", "4"]]
        @visitor.form("/rooms/closeds", people, name: "new closed room", **csrf)
        @visitor.get(@visitor.answers.last.location, name: "the closed room")
        @visitor.form("/rooms/directs", [["user_ids[]", "6"]], name: "new direct room", **csrf)
        @visitor.form("#{path}/involvement", { "_method" => "patch", "involvement" => "everything" },
                      name: "involvement", **csrf)
        @visitor.get("/users/me/sidebar", name: "the sidebar")
        @visitor.form(path, { "_method" => "delete" }, name: "delete the room", **csrf)
        @visitor.get(path, name: "the deleted room")
      end

      def account
        csrf = { "X-CSRF-Token": token("/account/edit") }
        @visitor.form("/account", { "_method" => "patch", "account[name]" => "Talk" }, name: "rename", **csrf)
        styles = { "_method" => "patch", "account[custom_styles]" => "a { color: red }" }
        @visitor.form("/account/custom_styles", styles, name: "styles", **csrf)
        @visitor.form("/users/me/profile", { "_method" => "patch", "user[bio]" => "über" }, name: "profile", **csrf)
        @visitor.get("/users/me/profile", name: "the profile")
        @visitor.form("/searches", { "q" => "größe" }, name: "search", **csrf)
        @visitor.get(@visitor.answers.last.location, name: "what was found")
        role = { "_method" => "patch", "user[role]" => "administrator" }
        @visitor.form("/account/users/9", role, name: "role", **csrf)
        @visitor.form("/account/users/10", { "_method" => "delete" }, name: "deactivate", **csrf)
        @visitor.get("/account/edit", name: "the account")
      end

      # What the application or Rails refuses.
      def refused
        csrf = { "X-CSRF-Token": token("/rooms/1") }
        other = { **csrf, "Sec-Fetch-Site": "cross-site" }
        @visitor.form("/rooms/1/messages", { "message[body]" => "x" }, name: "from another site", **other)
        @visitor.form("/rooms/1/messages", {}, name: "without a message", **csrf)
        @visitor.form("/rooms/99/messages", { "message[body]" => "x" }, name: "no such room", **csrf)
        @visitor.form("/rooms/1/messages", { "a[b]" => "1", "a" => "2" }, name: "bad parameters", **csrf)
        @visitor.get("/searches?q=%ZZ", name: "a bad query")
        @visitor.get("/searches?q=%FF", name: "bad UTF-8")
        @visitor.get("/rooms/1", name: "what is not known", Accept: "application/unknown")
        @visitor.get("/rooms/1", name: "an old browser", "User-Agent": "Mozilla/5.0 (Windows NT 6.1; rv:60.0) " \
                                                                       "Gecko/20100101 Firefox/60.0")
        @visitor.call("DELETE", "/rooms/1/messages/999999", nil, name: "delete what is not there", **csrf)
      end

      # It has no session.
      def robot
        path = "/rooms/1/#{ROBOT}/messages"
        @visitor.call("POST", path, "By a robot \u{1F916}", name: "message by a robot")
        @visitor.call("POST", path, CONTENT, chunks: true, name: "message in chunks")
        @visitor.call("POST", path, "", name: "message without a body")
        @visitor.multipart(path, {}, files: { "attachment" => ["c.txt", CONTENT] }, name: "file by a robot")
        @visitor.get(path, name: "what a robot may not")
        @visitor.call("POST", "/rooms/1/2-wrong/messages", "x", name: "a wrong key")
      end
    end
  end
end
