# frozen_string_literal: true

require "json"
require "rack/deflater"
require "rack/files"
require "rack/utils"
require "tmpdir"

# The tests that Ruby's servers run in HttpArena (https://www.http-arena.com, profiles of HTTP/1.1), with Rack only.
# Its tests over TLS and on PostgreSQL are left out.
class Arena
  PLAIN = { "content-type" => "text/plain" }.freeze
  JSON_TYPE = { "content-type" => "application/json" }.freeze
  CHUNK_BYTES = 64 * 1024
  # Kilobytes of the files of /static: a page's style sheets, scripts, fonts and images, 842 KB in all.
  FILES_KB = [8, 12, 15, 20, 22, 18, 6, 9, 45, 3, 55, 120, 30, 60, 25, 70, 100, 150, 48, 26].freeze
  ITEMS = Array.new(50) do |index|
    { id: index + 1, name: "Item number #{index + 1}", category: %w[garden kitchen office][index % 3],
      price: 100 + (index * 37), quantity: 1 + (index % 20), active: index.odd?, tags: %w[light sale],
      rating: { score: 30 + (index % 20), count: index * 11 } }.freeze
  end.freeze

  def initialize
    folder = Dir.mktmpdir("chaton-bench-static")
    FILES_KB.each_with_index { |size, index| File.write(File.join(folder, index.to_s), "z" * (size * 1024)) }
    owner = Process.pid
    at_exit { FileUtils.rm_rf(folder) if Process.pid == owner }
    @files = Rack::Files.new(folder)
  end

  def call(env)
    case env["PATH_INFO"]
    when "/baseline11" then [200, PLAIN.dup, [sum(env).to_s]]
    when %r{\A/json/(\d+)\z} then [200, JSON_TYPE.dup, [items(Regexp.last_match(1).to_i, query(env)["m"].to_i)]]
    when "/upload" then [200, PLAIN.dup, [size(env["rack.input"]).to_s]]
    when "/echo" then [200, { "content-type" => "application/octet-stream" }, [env["rack.input"].read]]
    when %r{\A/static(/\d+)\z} then @files.call(env.merge("PATH_INFO" => Regexp.last_match(1)))
    else [200, PLAIN.dup, ["ok"]]
    end
  end

  private

  # The sum of the query's values, and of the body where there is one.
  def sum(env)
    total = query(env).sum { |_, value| value.to_i }
    env["REQUEST_METHOD"] == "POST" ? total + env["rack.input"].read.to_i : total
  end

  def items(count, factor)
    found = ITEMS.first(count).map { |item| item.merge(total: item[:price] * item[:quantity] * factor) }
    JSON.generate(items: found, count: found.size)
  end

  # Counts the bytes that arrive, not those that were announced.
  def size(input)
    total = 0
    while (chunk = input.read(CHUNK_BYTES))
      total += chunk.bytesize
    end
    total
  end

  def query(env) = Rack::Utils.parse_query(env["QUERY_STRING"])
end

# Only JSON is compressed, when the client accepts it.
use Rack::Deflater, include: %w[application/json]
run Arena.new
