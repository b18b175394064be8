# frozen_string_literal: true

require_relative "raw_client"

# A client of HTTP/2 that opens no window for answers, frame by frame.
class Http2Frames
  DATA = 0
  HEADERS = 1
  RESET = 3
  SETTINGS = 4
  WINDOW = 8

  # @param tls [OpenSSL::SSL::SSLContext, nil] as of {RawClient}
  def initialize(port, tls: nil)
    tls&.alpn_protocols = ["h2"]
    @client = RawClient.new(port, tls: tls)
    # SETTINGS_INITIAL_WINDOW_SIZE
    @client.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n#{frame(SETTINGS, 0, [4, 0].pack("nN"))}")
  end

  # Asks for the path on as many streams.
  def get(path, streams = 1) = get_all([path] * streams)

  # Asks for each path on a stream.
  def get_all(paths)
    # END_HEADERS and END_STREAM
    @client.write(paths.each_with_index.map { |path, at| frame(HEADERS, (2 * at) + 1, head(path), flags: 5) }.join)
  end

  # Lets the server send so many bytes more.
  def open_window(stream, bytes) = @client.write(frame(WINDOW, stream, [bytes].pack("N")))

  # @return [Array(Integer, Integer)] the kind of the next frame, and its stream
  def next_frame
    length, low, kind, _, stream = @client.take(9).unpack("nCCCN")
    @client.take((length << 8) + low)
    [kind, stream]
  end

  def close = @client.close

  private

  def head(path)
    fields = { ":method" => "GET", ":scheme" => "https", ":path" => path, ":authority" => "localhost" }
    fields.map { |field| "\0#{field.map { |text| [text.bytesize].pack("C") + text }.join}" }.join
  end

  def frame(kind, stream, payload, flags: 0)
    [payload.bytesize >> 8, payload.bytesize & 0xff, kind, flags, stream].pack("nCCCN") + payload.b
  end
end
