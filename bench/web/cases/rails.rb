# frozen_string_literal: true

module Bench
  module Web
    # A Rails application on SQLite.
    module Cases
      RAILS = File.join(APPS, "rails/config.ru")
      # The threads in the config/puma.rb that `rails new` writes.
      RAILS_THREADS = lambda do
        version = Gem::Specification.find_all_by_name("railties").map(&:version).max
        version && version >= Gem::Version.new("7.2") ? "3:3" : "5:5"
      end

      RAILS_BARS = [Bar.at_least(:rps, 1.0, against: :fastest), Bar.at_most(:p99_ms, 1.0, against: :fastest)].freeze

      module_function

      def rails
        [
          rails_row("index-c10", "index of 50 rows, c=10"),
          rails_row("index-c50", "index of 50 rows, c=50", connections: 50),
          rails_row("show-c10", "show, c=10", path: "/posts/1"),
          rails_row("create-c10", "create, c=10", mode: "form", seconds: 5,
                                                  bars: [Bar.at_least(:rps, 1.5, against: :fastest),
                                                         Bar.at_most(:p99_ms, 1.0, against: :fastest)])
        ]
      end

      # Both servers have the form that Rails generates: one process, and as many threads as its config/puma.rb has.
      def rails_row(name, title, bars: RAILS_BARS, **given)
        threads = RAILS_THREADS.call
        row("rails-#{name}", "Rails on SQLite, #{title}; both: -w 0 and Rails' threads (5:5, since 7.2 3:3)",
            bars,
            rackup: RAILS, path: "/posts", connections: 10, warmup_s: 2,
            servers: [Chaton.new(threads:), *pumas(threads)], **given)
      end
    end
  end
end
