# frozen_string_literal: true

module Crossings
  # The factors that are crossed. A case is one value of each.
  FACTORS = {
    # proxy1: HTTP/1.1 behind version 1 of the PROXY protocol. proxy2: HTTP/2 behind version 2.
    version: %w[http10 http11 https proxy1 h2c h2 proxy2],
    # upgrade: a protocol of `rack.protocol` (Rack 3.1). switch: 101 beside a partial hijack.
    # empty: 204. unchanged: 304, both of the application.
    # sized: by `each`, with a Content-Length.
    body: %w[array each sized call path events partial full upgrade switch empty unchanged],
    compress: %w[off on],
    ask: %w[get head range condition gzip gzip_head],
    client: %w[reads stalls leaves],
    # first: in the body, before its first byte. middle: after half of it. close: in `body.close`.
    failure: %w[none before first middle close],
    restart: %w[none phased stop]
  }.freeze

  # Half of it compresses, and no part is equal to another one.
  #
  # @return [String]
  def self.text(size) = Random.new(size).bytes(size / 2).unpack1("H*")

  SMALL_BYTES = 24_000
  # More than the buffers of a connection take whose client reads nothing.
  LARGE_BYTES = 400_000
  TEXTS = [SMALL_BYTES, LARGE_BYTES].to_h { |size| [size, text(size).freeze] }.freeze
  ETAG = '"crossing"'
  RANGE = (10..19)

  Case = Struct.new(*FACTORS.keys) do
    # @param text [String] as {#to_s} makes it
    def self.parse(text)
      values = text.split("/")
      known = values.size == FACTORS.size && FACTORS.values.zip(values).all? { |all, value| all.include?(value) }
      raise ArgumentError, "#{text} is no case: #{FACTORS.values.map { |all| all.join("|") }.join(" / ")}" unless known
      new(*values)
    end

    def to_s = to_a.join("/")
    def http2? = %w[h2c h2 proxy2].include?(version)
    def tls? = %w[https h2].include?(version)
    def head? = ask.end_with?("head")
    def gzip? = ask.start_with?("gzip")
    def compress? = compress == "on"
    def restart? = restart != "none"
    def size = client == "reads" ? SMALL_BYTES : LARGE_BYTES

    # What the application gives instead where the protocol does not allow the body.
    #
    # @return [String]
    def given
      case body
      when "full" then http2? ? "array" : body
      # HTTP/2 has no 101 (RFC 9113 section 8.6), HTTP/1.0 no Upgrade (RFC 9110 section 7.8). The application
      # switches for GET only.
      when "upgrade", "switch" then http2? || version == "http10" || head? ? "required" : body
      else body
      end
    end

    # Whether the application produces the body while it is sent.
    def produced? = %w[each sized call events partial full upgrade switch].include?(given)

    # Whether the production runs: not for HEAD.
    def runs? = produced? && !head? && failure != "before"

    # Whether it is no other case under another name.
    def possible? = produced? || !%w[first middle].include?(failure)

    # The point where the application waits until the restart is under way or the client has left.
    def gate = runs? && failure != "first" ? "middle" : "arrived"
  end

  # @return [Array<Case>] the full product
  def self.all
    first, *others = FACTORS.values
    first.product(*others).map { |values| Case.new(*values) }.select(&:possible?)
  end

  # Cases that have each pair of values that occurs together at all, chosen greedily: of some cases with a pair that is
  # left the one with most such pairs.
  #
  # @param random [Random]
  # @return [Array<Case>]
  def self.pairs(random)
    cases = all
    of_pair = Hash.new { |hash, pair| hash[pair] = [] }
    cases.each { |one| pairs_of(one).each { |pair| of_pair[pair] << one } }
    left = of_pair.keys.to_h { |pair| [pair, true] }
    chosen = []
    until left.empty?
      candidates = of_pair[left.first.first].sample(60, random: random)
      chosen << candidates.max_by { |one| pairs_of(one).count { |pair| left[pair] } }
      pairs_of(chosen.last).each { |pair| left.delete(pair) }
    end
    chosen
  end

  def self.pairs_of(one) = one.each_pair.to_a.combination(2)
end
