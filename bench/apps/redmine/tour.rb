# frozen_string_literal: true

require "json"
require_relative "../tour"

module Bench
  module Apps
    # What a visitor of Redmine does: reads 200 pages, and writes by forms and by the API.
    class RedmineTour < Tour
      PASSWORD = "a pass phrase"
      KEY = { "X-Redmine-API-Key": "a" * 40 }.freeze
      JSON_KEY = { **KEY, "Content-Type": "application/json" }.freeze
      STARTS = %w[/ /projects /issues /projects/alpha/issues /projects/alpha/wiki /activity /users/1 /admin /my/page
                  /issues.json /issues.xml /projects.json /issues/3.json?include=journals /robots.txt
                  /nowhere
                  /projects/alpha/issues.csv /projects/alpha/issues.pdf /issues/17.pdf /projects/alpha/wiki/Page_3.pdf
                  /projects/alpha/wiki/Page_3.txt /projects/alpha/activity.atom /projects/alpha/issues.atom
                  /projects/alpha/issues/gantt /projects/alpha/issues/calendar /projects/alpha/roadmap
                  /search?q=discount /issues/auto_complete?term=order /stylesheets/application.css
                  /javascripts/application.js
                  /favicon.ico /news /projects/alpha/boards /time_entries /time_entries/report].freeze
      # They end the session, or their answer is the moment's.
      NOT_READ = %r{\A/(?:logout|admin/info)|\A//|/(?:back_url|set_language)}
      # They have the time at which they were made.
      MADE_NOW = /\.(?:atom|pdf)\b/
      CONTENT = "x" * 70_000
      # A wiki page that is not there yet.
      FRESH = "/projects/alpha/wiki/Fresh"
      STYLESHEET = %r{href="(/[\w/]+/application(?:-\h+)?\.css)}

      def call
        log_in
        crawl
        files
        issue
        wiki
        refused
        api
        @visitor.form("/logout", { "authenticity_token" => token("/my/account") }, name: "log out")
        @visitor.get("/my/page", name: "logged out")
        log_in
        without_a_token
        @visitor.answers
      end

      private

      def log_in
        @visitor.get("/my/page", name: "not logged in")
        given = { "authenticity_token" => token("/login"), "username" => "admin" }
        @visitor.form("/login", { **given, "password" => "wrong" }, name: "wrong password")
        again = { "authenticity_token" => @visitor.answers.last.token, "password" => PASSWORD }
        @visitor.form("/login", { **given, **again }, name: "log in")
      end

      # Pieces of a file, whose name has a digest since Redmine 6, and one that is not there.
      def files
        path = @visitor.get("/projects", name: "a styled page").body[STYLESHEET, 1]
        @visitor.get(path, name: "a piece", Range: "bytes=100-199")
        @visitor.get(path, name: "the end", Range: "bytes=-50")
        @visitor.get(path, name: "no piece", Range: "bytes=99999999-")
        @visitor.get("/stylesheets/none.css", name: "no file")
        @visitor.get("/issues?#{"f[]=status_id&" * 100}", name: "a long address")
      end

      def issue
        path = new_issue
        page = @visitor.get(path, name: "the new issue")
        attachment = page.body[%r{/attachments/download/\d+/a.txt}].to_s
        @visitor.get(attachment, name: "its file")
        @visitor.get(attachment, name: "a piece of its file", Range: "bytes=10-19")
        given = { "_method" => "patch", "authenticity_token" => page.token, "issue[notes]" => "Done? *Yes*.",
                  "issue[status_id]" => "2", "issue[done_ratio]" => "40" }
        @visitor.multipart(path, given, files: { "attachments[1][file]" => ["b.txt", "small"] }, name: "edit")
        @visitor.get(path, name: "the edited issue")
        text = { "project_id" => "1", "text" => "h1. *x*" }
        @visitor.form("/issues/preview", { **text, "authenticity_token" => page.token }, name: "preview")
        @visitor.form(path, { "_method" => "delete", "authenticity_token" => page.token }, name: "delete")
        @visitor.get(path, name: "the deleted issue")
      end

      # @return [String] its path
      def new_issue
        form = token("/projects/alpha/issues/new")
        upload = { "Content-Type": "application/octet-stream", "X-CSRF-Token": form }
        path = "/uploads.js?attachment_id=1&filename=a.txt"
        uploaded = @visitor.call("POST", path, CONTENT, chunks: true, name: "upload", **upload)
        fields = { "issue[tracker_id]" => "1", "issue[subject]" => "Größe × 2", "issue[status_id]" => "1",
                   "issue[description]" => "Line\r\n\r\nüber *it*", "issue[priority_id]" => "2",
                   "issue[is_private]" => "0", "attachments[1][token]" => uploaded.body[/\d+\.\h{64}/].to_s,
                   "attachments[1][filename]" => "a.txt" }
        @visitor.multipart("/projects/alpha/issues", { **fields, "authenticity_token" => form }, name: "new issue")
        @visitor.answers.last.location
      end

      def wiki
        write_page(@visitor.get("#{FRESH}/edit", name: "edit a page"), "new page" => "h1. Fresh\r\n\r\nüber\r\n")
        form = @visitor.get("#{FRESH}/edit", name: "edit it again")
        write_page(form, "edited page" => "h1. Fresher", "too late" => "late")
        @visitor.get("#{FRESH}/history", name: "history")
        @visitor.get("#{FRESH}/diff?version=2&version_from=1", name: "difference")
      end

      def write_page(form, texts)
        given = { "_method" => "put", "authenticity_token" => form.token, "content[comments]" => "New",
                  "content[version]" => form.body[/value="(\d+)" name="content\[version\]"/, 1] }
        texts.each do |name, text|
          @visitor.form(FRESH, { **given, "content[text]" => text }, name:)
          @visitor.get(FRESH, name: "after #{name}")
        end
      end

      # Redmine ends the session.
      def without_a_token
        @visitor.form("/projects/alpha/issues", { "issue[subject]" => "x" }, name: "without a token")
        @visitor.get("/my/page", name: "after that")
      end

      # What the application or Rails refuses.
      def refused
        given = { "authenticity_token" => token("/my/account") }
        @visitor.form("/projects/alpha/issues", { **given, "issue[subject]" => "" }, name: "without a subject")
        @visitor.form(FRESH, { "a[b]" => "1", "a" => "2" }, name: "bad parameters")
        @visitor.get("/issues?f[]=1&f=%ZZ", name: "a bad query")
        @visitor.get("/issues/17", name: "what is not known", Accept: "application/unknown")
        @visitor.call("DELETE", "/issues/999999", nil, name: "delete what is not there",
                                                       "X-CSRF-Token": given["authenticity_token"])
      end

      def api
        given = { issue: { project_id: 1, tracker_id: 1, subject: "By API \u{1F431}", priority_id: 2 } }
        created = @visitor.call("POST", "/issues.json", JSON.generate(given), name: "create by API", **JSON_KEY)
        path = "/issues/#{JSON.parse(created.body).dig("issue", "id")}.json"
        change = JSON.generate(issue: { notes: "More", done_ratio: 50 })
        @visitor.call("PUT", path, change, name: "change by API", **JSON_KEY)
        @visitor.get("#{path}?include=journals", name: "read by API", **KEY)
        @visitor.call("PUT", path, JSON.generate(issue: { subject: "" }), name: "invalid by API", **JSON_KEY)
        @visitor.call("POST", "/issues.json", "{", name: "bad JSON", **JSON_KEY)
        @visitor.call("POST", "/issues.xml", "<issue><project_id>1</project_id><subject>By XML</subject></issue>",
                      name: "create by XML", **KEY, "Content-Type": "application/xml")
        @visitor.call("POST", "/uploads.json?filename=c.txt", CONTENT,
                      name: "upload by API", **KEY, "Content-Type": "application/octet-stream")
        @visitor.call("DELETE", path, nil, name: "delete by API", **KEY)
        @visitor.get(path, name: "deleted by API", **KEY)
        @visitor.get("/users.json", name: "a wrong key", "X-Redmine-API-Key": "b" * 40)
      end
    end
  end
end
