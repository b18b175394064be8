# frozen_string_literal: true

require "cgi"
require_relative "visitor"

module Bench
  module Apps
    # What a visitor of an application does. Subclasses say by `call` in which order, and have the pages to begin with
    # in STARTS, those to leave out in NOT_READ, and in MADE_NOW those whose time is that of the request.
    class Tour
      PAGES = 200
      # Of one kind, so that there are pages of every kind: addresses are of one kind but for their numbers.
      OF_KIND = 7
      # Of the pages in HTML, whose ETags have a token in them, some are asked for again.
      HEAD_EVERY = 5
      LINK = %r{<(?:a|link|script|img|turbo-frame)\b([^>]*?)\b(?:href|src)="(?:http://#{Visitor::HOST})?(/[^"#]*)([^>]*)}

      # @param visitor [Visitor]
      def initialize(visitor)
        @visitor = visitor
      end

      private

      def token(path) = @visitor.get(path).token

      # Breadth first.
      def crawl
        queue, seen, kinds = self.class::STARTS.dup, self.class::STARTS.to_h { |path| [path, true] }, Hash.new(0)
        read = 0
        while read < PAGES && (path = queue.shift)
          read += 1
          answer = @visitor.get(path)
          again(path, answer) if !html?(answer) || (read % HEAD_EVERY).zero?
          links(answer).each do |link|
            next if seen[link] || link.match?(self.class::NOT_READ) || (kinds[kind(link)] += 1) > OF_KIND
            seen[link] = true
            queue << link
          end
        end
      end

      # By HEAD, and by its ETag and time if it has them.
      def again(path, answer)
        @visitor.head(path)
        return if path.match?(self.class::MADE_NOW)
        etag, modified = answer.headers.values_at("etag", "last-modified")
        @visitor.get(path, name: "GET #{path} by etag", "If-None-Match": etag) if etag
        @visitor.get(path, name: "GET #{path} by time", "If-Modified-Since": modified) if modified
      end

      def links(answer)
        return [] unless html?(answer)
        answer.body.scan(LINK)
          .reject { |before, _, after| "#{before}#{after}".include?("data-method") }
          .map { |_, link, _| CGI.unescapeHTML(link) }
      end

      def html?(answer) = answer.headers["content-type"].to_s.start_with?("text/html")

      # Digests are in the names of assets.
      def kind(link) = link.sub(/\?.*/, "?").sub(%r{\A/assets/.*\.}, "/assets/.").gsub(/\d+/, "N")
    end
  end
end
