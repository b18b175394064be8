# frozen_string_literal: true

module Bench
  module Web
    # The tests of HttpArena (https://www.http-arena.com) that Ruby's servers run there, with fewer connections, because
    # its machine has 64 cores. apps/arena.ru and load.lua have the requests.
    module Cases
      ARENA = File.join(APPS, "arena.ru")
      SUM = "/baseline11?a=13&b=42"

      module_function

      def arena
        [
          arena_row("baseline", "sum of query and body: GET, POST, POST chunked in turn", 4.0, path: SUM),
          arena_row("pipelined", "16 requests at once on each connection", 2.0, path: "/pipeline"),
          arena_row("short-lived", "10 requests per connection", 3.0, path: SUM, mode: "short_lived"),
          arena_row("json", "JSON of 1 to 50 items", 1.5),
          arena_row("json-gzip", "JSON of 25 to 50 items through Rack::Deflater", 1.2, mode: "json_gzip"),
          arena_row("echo", "POST of 10 KB, sent back", 2.0, path: "/echo"),
          arena_row("static", "20 files of 3 to 150 KB through Rack::Files", 2.0),
          arena_row("upload", "POST of 0.5, 2, 10 and 20 MB in turn", 1.0,
                    path: "/upload", connections: 32, seconds: 5, warmup_s: 2)
        ]
      end

      def arena_row(name, title, times, connections: 100, **given)
        row("arena-#{name}", "HttpArena's #{name}: #{title}, c=#{connections}, 5 threads",
            [Bar.at_least(:rps, times)], rackup: ARENA, mode: name, connections:, **given)
      end
    end
  end
end
