# frozen_string_literal: true

module Crossings
  # Decodes heads of HTTP/2 (RFC 7541), and encodes those of requests without tables and Huffman codes.
  class Hpack
    class Malformed < StandardError; end

    # RFC 7541 appendix A.
    STATIC = [nil, %w[:authority], %w[:method GET], %w[:method POST], %w[:path /], %w[:path /index.html],
              %w[:scheme http], %w[:scheme https], %w[:status 200], %w[:status 204], %w[:status 206], %w[:status 304],
              %w[:status 400], %w[:status 404], %w[:status 500], ["accept-charset"],
              ["accept-encoding", "gzip, deflate"],
              *%w[accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control
                  content-disposition content-encoding content-language content-length content-location content-range
                  content-type cookie date etag expect expires from host if-match if-modified-since if-none-match
                  if-range if-unmodified-since last-modified link location max-forwards proxy-authenticate
                  proxy-authorization range referer refresh retry-after server set-cookie strict-transport-security
                  transfer-encoding user-agent vary via www-authenticate].zip].freeze
    # The code of appendix B is canonical, so the lengths say all: one digit in base 36 for each byte.
    LENGTHS = "dnsssssssoussussssssssusssssssss6aacd68baa8b8666555666666678f6cad677777777777777777777" \
              "77878djde6f56565666577666567655677777fbedskmkkmmmnmnnnnnonoomnonnnnlmnmnnomlkmmnnlnmmo" \
              "lmnnllmlnmnnkmmmnmmnqqkjmnmpqqqrrqopjlqrrqrollqqsrrrkoklmllnmmppooqnqrqqrrrrrsrrrrrq"
      .each_char.map { |digit| digit.to_i(36) }.freeze
    TABLE_BYTES_MAX = 4096

    # @return [Hash{Array(Integer, Integer) => Integer}] byte by length and code
    def self.codes
      @codes ||= LENGTHS.each_with_index.sort.each_with_object([{}, 0, 0]) do |(length, byte), state|
        codes, next_code, last_length = state
        code = next_code << (length - last_length)
        codes[[length, code]] = byte
        state[1, 2] = [code + 1, length]
      end.first
    end

    # @param fields [Array<Array(String, String)>]
    def self.encode(fields)
      fields.map { |name, value| "\0#{literal(name)}#{literal(value)}" }.join.b
    end

    def self.literal(text)
      size = text.bytesize
      return [size, text].pack("Ca*") if size < 127
      bytes = [127]
      size -= 127
      while size >= 128
        bytes << ((size & 127) | 128)
        size >>= 7
      end
      [*bytes, size].pack("C*") + text.b
    end

    def initialize
      @dynamic = []
      @bytes_max = TABLE_BYTES_MAX
    end

    # @return [Array<Array(String, String)>]
    def decode(block)
      @block = block.b
      @at = 0
      fields = []
      while @at < @block.bytesize
        field = decode_field
        fields << field if field
      end
      fields
    end

    private

    def decode_field
      first = @block.getbyte(@at)
      return at_index(integer(7)) if first & 0x80 != 0
      return named(6).tap { |field| remember(field) } if first & 0x40 != 0
      return named(4) if first & 0x20 == 0
      @bytes_max = integer(5)
      raise Malformed, "a table of #{@bytes_max} bytes" if @bytes_max > TABLE_BYTES_MAX
      evict
    end

    def named(bits)
      index = integer(bits)
      name = index.zero? ? string : at_index(index).first
      [name, string]
    end

    def at_index(index)
      field = index < STATIC.size ? STATIC[index] : @dynamic[index - STATIC.size]
      raise Malformed, "index #{index} of a header is unknown" unless field
      [field[0], field[1].to_s]
    end

    def remember(field)
      @dynamic.unshift(field)
      evict
    end

    def evict
      @dynamic.pop while @dynamic.sum { |name, value| name.bytesize + value.bytesize + 32 } > @bytes_max
    end

    def integer(bits)
      value = byte & ((1 << bits) - 1)
      return value if value < (1 << bits) - 1
      shift = 0
      loop do
        more = byte
        value += (more & 127) << shift
        shift += 7
        return value if more < 128
      end
    end

    def string
      huffman = @block.getbyte(@at).to_i & 0x80 != 0
      size = integer(7)
      raise Malformed, "a text ends behind its block" if @at + size > @block.bytesize
      text = @block.byteslice(@at, size)
      @at += size
      huffman ? inflate(text) : text
    end

    def inflate(text)
      out = +"".b
      length = code = 0
      text.unpack1("B*").each_char do |bit|
        code = (code << 1) | bit.to_i
        length += 1
        next unless (found = self.class.codes[[length, code]])
        out << found
        length = code = 0
      end
      raise Malformed, "the padding of a Huffman code" unless length < 8 && code == (1 << length) - 1
      out
    end

    def byte
      @at += 1
      @block.getbyte(@at - 1) or raise Malformed, "a block of headers ends too early"
    end
  end
end
