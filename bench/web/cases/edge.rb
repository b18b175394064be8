# frozen_string_literal: true

module Bench
  module Web
    # What a proxy in front would do: files of a directory, and compressed pages.
    module Cases
      EDGE = File.join(APPS, "edge.ru")
      EDGE_CONFIG = File.join(APPS, "edge.rb")
      # As in both.
      EDGE_ROOT = File.expand_path("../../../tmp/bench/edge", __dir__)
      FILES = { "1k" => "1 KB", "10k" => "10 KB", "1m" => "1 MB" }.freeze

      module_function

      def edge = [*files, gzip]

      def files
        FILES.map do |name, size|
          edge_row("static-#{name}", "file of #{size}, c=100; Puma: Rack::Static", [Bar.at_least(:rps, 8.0)],
                   path: "/files/#{name}.css")
        end
      end

      def gzip
        edge_row("gzip", "gzip of a page of 50 KB, c=100; Puma: Rack::Deflater", [Bar.at_least(:rps, 1.5)],
                 mode: "gzip")
      end

      def edge_row(name, title, bars, **given)
        row(name, title, bars, rackup: EDGE,
                               **{ servers: [Chaton.new(config: EDGE_CONFIG), *pumas("5:5")] }.merge(given))
      end
    end
  end
end
