# frozen_string_literal: true

module Bench
  module Web
    # A Rails application on SQLite. Chaton has its defaults; Puma has the threads that `rails new` writes into its
    # config/puma.rb, 3 since Rails 7.2 and 5 before.
    module Cases
      RAILS = File.join(APPS, "rails/config.ru")
      RAILS_PAGES = [["index", "index of 50 rows", "/posts"], ["show", "show", "/posts/1"]].freeze
      RAILS_THREADS = %w[3:3 5:5].freeze
      # A form on SQLite: Rails before 8 lets a waiting transaction keep Ruby's lock, which Chaton's railtie mends.
      CREATE = { path: "/posts", mode: "form", seconds: 5 }.freeze

      module_function

      def rails
        [*rails_alone, *[10, 50].flat_map { |connections| rails_rows(connections) }, *rails_beside_neighbours]
      end

      # Small machines run other programs, too.
      def rails_beside_neighbours
        RAILS_PAGES.product([1, 2]).map do |(action, title, path), neighbours|
          row("rails-#{action}-beside#{neighbours}",
              "Rails on SQLite, #{title}, c=10, CPU-bound neighbours: #{neighbours}",
              [Bar.at_most(:p99_ms, 1.0, against: :fastest)],
              rackup: RAILS, connections: 10, warmup_s: 2, scouts: 2, servers: rails_servers(0), path:, neighbours:)
        end
      end

      # One request at a time shows what a request costs, without a queue or a second thread.
      def rails_alone
        bars = [Bar.at_least(:rps, 0.97, against: :fastest), Bar.at_most(:p99_ms, 1.05, against: :fastest)]
        pages = RAILS_PAGES.map { |action, title, path| [action, title, { path: }] }
        [*pages, ["create", "create", CREATE]].map do |action, title, given|
          row("rails-#{action}-c1", "Rails on SQLite, #{title}, c=1, 1 process; Chaton's defaults", bars,
              rackup: RAILS, connections: 1, warmup_s: 2, scouts: 2, servers: rails_servers(0), **given)
        end
      end

      def rails_rows(connections)
        pages = [0, 2].product(RAILS_PAGES).map do |workers, (action, title, path)|
          rails_row(action, title, connections, workers:, path:)
        end
        pages.insert(RAILS_PAGES.size, rails_row("create", "create", connections, **CREATE))
      end

      def rails_row(action, title, connections, workers: 0, **given)
        suffix = workers.zero? ? "" : "-workers"
        processes = workers.zero? ? "1 process" : "#{workers} workers"
        row("rails-#{action}#{suffix}-c#{connections}",
            "Rails on SQLite, #{title}, c=#{connections}, #{processes}; Chaton's defaults",
            [Bar.at_least(:rps, 1.0, against: :fastest), Bar.at_most(:p99_ms, 0.75, against: :fastest),
             memory_bar(workers)],
            rackup: RAILS, connections:, warmup_s: 2, scouts: 2, servers: rails_servers(workers), **given)
      end

      def rails_servers(workers)
        pumas = RAILS_THREADS.flat_map do |threads|
          [Puma.new(threads:, workers:), (Puma.new(threads:, core: PINNED_CORE) if workers.zero?)]
        end
        [Chaton.new(workers:), *pumas.compact]
      end

      def memory_bar(workers)
        return Bar.at_most(:rss_mb, 1.05, against: :fastest) if workers.zero?
        Bar.at_most(:pss_mb, 0.95, against: :fastest)
      end
    end
  end
end
