# frozen_string_literal: true

require "time"
require "zlib"

module Bench
  module Apps
    # Takes out of a response what differs between two runs of one server: tokens, times, and how the body was framed.
    module Normalizer
      # Framing and the hop between client and server (RFC 9110, 7.6.1) are the server's own; so is the date, and that
      # Chaton sends pieces of files by itself.
      HOP = %w[connection keep-alive date transfer-encoding content-length server accept-ranges].freeze
      # Different in every response of Rails; that they are there is compared.
      RANDOM = %w[x-request-id x-runtime].freeze
      MASKS = {
        /(name="csrf-token" content=)"[^"]+"/ => '\1TOKEN',
        /(name="authenticity_token" value=)"[^"]+"/ => '\1TOKEN',
        /(name="authenticity_token"[^>]* value=)"[^"]+"/ => '\1TOKEN',
        /([?&;](?:amp;)?key=)\h{40}/ => '\1KEY',
        /(name="[\w-]+)-\h{8}"/ => '\1-RANDOM"',
        # "about 5 hours", "3 days"
        /(?:about |over |almost |less than )?\b(?:\d+|a|an|1) (?:second|minute|hour|day|month|year)s?\b/ => "SPAN",
        /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|\+00:00)/ => "TIME",
        %r{\d\d/\d\d/\d{4} \d\d:\d\d [AP]M} => "TIME",
        />\d\d:\d\d(?: [AP]M)?</ => ">TIME<",
        # Milliseconds, and times in addresses that say when a picture has changed.
        /="1\d{12}"/ => '="TIME"',
        /([?&;]v=)\d{14,20}\b/ => '\1TIME',
        # Signed addresses that expire, and the code that shows such an address.
        %r{(/transfers/)[\w=%-]+--\h+} => '\1SIGNED',
        %r{(/active_storage/disk/)[\w=%-]+--\h+} => '\1SIGNED',
        %r{(/qr_code/)[\w=%-]+} => '\1ADDRESS',
        # Names of stored files.
        /\b\d{12}_/ => "TIME_"
      }.freeze
      # Times inside of PDF files.
      PDF_MASKS = { /D:\d{14}[^)]*/ => "TIME", %r{/ID \[.*?\]} => "ID" }.freeze
      # Files that are newer were stored by a visitor.
      BEGUN = Time.now
      TEXTS = %r{\A(?:text|application)/(?!pdf|octet-stream)}

      module_function

      # @param answer [Visitor::Answer]
      # @return [Hash{String => Object}] equal for two responses that mean the same
      def call(answer)
        type = answer.headers["content-type"].to_s
        { "status" => answer.status, "headers" => headers(answer.headers), "body" => mask(plain(answer), type),
          "range" => answer.range }
      end

      # Whether the other one is the piece that was asked for of what the first one sent whole: Chaton reads `Range` if
      # the body is a file, and Puma leaves it to the application (docs/RACK.md).
      def piece?(whole, piece)
        return false unless whole["status"] == 200 && (range = whole["range"]&.match(/\Abytes=(\d+)-(\d+)\z/))
        headers = { **whole["headers"], "content-range" => "bytes #{range[1]}-#{range[2]}/#{whole["body"].bytesize}" }
        body = whole["body"].byteslice(range[1].to_i..range[2].to_i)
        piece == { **whole, "status" => 206, "headers" => headers, "body" => body }
      end

      # Compressed, a body with another token is another one.
      def plain(answer)
        answer.headers["content-encoding"] == "gzip" ? Zlib.gunzip(answer.body).b : answer.body
      end

      # @return [Array<String>] what is different, for a reader
      def difference(one, other)
        headers = one["headers"].keys | other["headers"].keys
        [*("status #{one["status"]}, #{other["status"]}" if one["status"] != other["status"]),
         *headers.reject { |name| one["headers"][name] == other["headers"][name] }
           .map { |name| "#{name}: #{one["headers"][name].inspect}, #{other["headers"][name].inspect}" },
         *(body_difference(one["body"], other["body"]) if one["body"] != other["body"])]
      end

      def mask(text, type)
        masks = type.match?(TEXTS) ? MASKS : PDF_MASKS
        masks.reduce(text) { |masked, (pattern, mask)| masked.gsub(pattern, mask) }
      end

      # A weak ETag is the digest of a body, which is compared, and in which there may be a token.
      def headers(given)
        given.except(*HOP).to_h do |name, value|
          shown = case name
                  when *RANDOM then "present"
                  when "etag" then value.start_with?("W/") ? "weak" : value
                  when "last-modified" then Time.httpdate(value) > BEGUN ? "NEW" : value
                  when "set-cookie" then value.gsub(/^([^=;]+=)[^;\n]+/, '\1VALUE').gsub(/(expires=)[^;\n]+/, '\1TIME')
                  else mask(value.b, "text/plain")
                  end
          [name, shown]
        end
      end

      def body_difference(one, other)
        at = one.bytes.zip(other.bytes).index { |left, right| left != right } || one.bytesize
        from = [at - 40, 0].max
        "body at #{at}: #{one.byteslice(from, 120).inspect}, #{other.byteslice(from, 120).inspect}"
      end
    end
  end
end
