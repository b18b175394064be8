# frozen_string_literal: true

require "fileutils"
require "rack/deflater"
require "rack/static"

# What stands between an application and the internet: files of a directory, and compressed pages. Chaton does both by
# itself, with the settings of edge.rb.
ROOT = File.expand_path("../../../tmp/bench/edge", __dir__)
FileUtils.mkdir_p(File.join(ROOT, "files"))
{ "1k" => 1 << 10, "10k" => 10 << 10, "1m" => 1 << 20 }.each do |name, size|
  path = File.join(ROOT, "files", "#{name}.css")
  File.write("#{path}.#{Process.pid}", "x" * size)
  File.rename("#{path}.#{Process.pid}", path)
end

# 50 KB of HTML.
ROWS = Array.new(900) do |i|
  "<tr><td>#{i}</td><td class=\"name\">customer #{i * 7919}</td><td>#{i * 31 % 997}.00</td></tr>\n"
end
PAGE = [ROWS.join.byteslice(0, 50_000).freeze].freeze

use Rack::Static, urls: ["/files"], root: ROOT
use Rack::Deflater unless defined?(Chaton)
run ->(_env) { [200, { "content-type" => "text/html; charset=utf-8" }, PAGE] }
