# frozen_string_literal: true

require_relative "../support/bar"
require_relative "../support/case"
require_relative "../web/case_run"
require_relative "answers"
require_relative "deploys"
require_relative "campfire"
require_relative "redmine"
require_relative "servers"
require_relative "summary"

module Bench
  # Real applications on Chaton and on Puma.
  module Apps
    # `bin/apps`; Bench::Run calls its methods.
    module Suite
      APPS = [Redmine.instance, Campfire.instance].freeze
      CONNECTIONS = [4, 10, 50].freeze
      # What `rails new` has given Puma, and what is often set.
      PUMA_THREADS = %w[3:3 5:5 16:16].freeze
      # Limits of --quick: a run for orientation, too short to be cited.
      QUICK = { rounds: 1, seconds: 4 }.freeze

      module_function

      def name = "apps"
      def programs = %w[wrk rails]
      def charts = []
      def summary(results) = Summary.new(results)

      def cases
        @cases ||= APPS.flat_map do |app|
          one, two = [0, 2].map { |workers| app_servers(app, workers) }
          [answers(app), deploys(app), *loads(app, one, 0), *beside_neighbours(app, one), *loads(app, two, 2)]
        end
      end

      # Puma is asked first, and at the end again.
      def answers(app)
        puma = AppPuma.new(app, threads: "5:5")
        Case.new(name: "#{app.name}-answers", title: "#{app.name.capitalize}: #{app.asked}", kind: Answers, rounds: 1,
                 tour: app.class::TOUR, servers: [puma, AppChaton.new(app), puma], shows: %i[responses different],
                 bars: [Bar.at_most(:different, 0, against: nil, of: "chaton")])
      end

      def deploys(app)
        Case.new(name: "#{app.name}-deploys", kind: Deploys, rounds: 3, path: app.class::ROUTES[1].path,
                 connections: 20,
                 title: "#{app.name.capitalize}, c=20, 2 workers: three deploys, and a `kill -9` of a worker",
                 servers: [AppChaton.new(app, workers: 2), AppChaton.new(app, workers: 2, warmed: true),
                           AppPuma.new(app, workers: 2, threads: "5:5", phased: true)],
                 shows: %i[failed cut requests pss_mb deployed_mb],
                 bars: ["chaton -w 2", "chaton warmed -w 2"].flat_map { |of| deploy_bars(of) })
      end

      def deploy_bars(of)
        [Bar.at_most(:failed, 0, against: nil, of:), Bar.at_most(:cut, 20, against: nil, of:),
         Bar.at_most(:pss_mb, 0.95, of:), Bar.at_most(:deployed_mb, 0.95, of:)]
      end

      def loads(app, servers, workers)
        app.class::ROUTES.product(CONNECTIONS).map do |route, connections|
          processes = workers.zero? ? "1 process" : "#{workers} workers"
          row(app, route, [*("w#{workers}" if workers > 0), "c#{connections}"], "c=#{connections}, #{processes}",
              servers:, connections:, group: "loads", bars: bars(workers))
        end
      end

      # Small machines run other programs, too.
      def beside_neighbours(app, servers)
        route = app.class::ROUTES[1]
        [1, 2].map do |neighbours|
          row(app, route, ["beside#{neighbours}"], "c=10, CPU-bound neighbours: #{neighbours}",
              servers:, connections: 10, neighbours:, bars: [Bar.at_most(:p99_ms, 1.0, against: :fastest)])
        end
      end

      def row(app, route, names, title, **rest)
        title = [app.name.capitalize, route.title, title].join(", ")
        Case.new(name: [app.name, route.name, *names].join("-"), title:,
                 rackup: app.rackup, path: route.path, mode: route.mode, scouts: 2, rounds: 3, seconds: 8, warmup_s: 2,
                 shows: %i[rps p99_ms pss_mb], **rest)
      end

      # Each boots once for all its rows.
      def app_servers(app, workers)
        pumas = PUMA_THREADS.flat_map do |threads|
          [nil, *(PINNED_CORE if workers.zero?)].map do |core|
            AppPuma.new(app, kept: true, workers:, threads:, core:)
          end
        end
        [AppChaton.new(app, kept: true, workers:), *pumas]
      end

      def bars(workers)
        [Bar.at_least(:rps, 1.0, against: :fastest), Bar.at_most(:p99_ms, 0.75, against: :fastest),
         Bar.at_most(:pss_mb, workers.zero? ? 1.05 : 0.95, against: :fastest)]
      end

      # @return [Hash{Symbol => Object}] the raw results
      def measure(a_case, quick:, progress:)
        app = a_case.servers.first.app.prepare
        stop_others(a_case.servers)
        a_case = shortened(a_case) if quick
        (a_case.kind || Web::CaseRun).new(a_case, ->(*slice) { progress.call(line(*slice)) }).run
          .merge(versions: app.versions)
      end

      def shortened(a_case)
        a_case.dup.tap { |short| QUICK.each { |name, most| short[name] = [short[name], most].compact.min } }
      end

      def stop_others(servers)
        (@up.to_a - servers).each(&:close)
        at_exit { @up.each(&:close) } unless @up
        @up = servers
      end

      def line(a_case, figures, round)
        shown = figures.slice(:rps, :p99_ms, :cpu_us, :pss_mb, :errors, :responses, :different, :failed, :cut,
                              :requests, :deployed_mb, :error)
        format("%d/%d  %-24s %s", round + 1, a_case.rounds, figures[:server],
               shown.map { |metric, value| "#{metric} #{value}" }.join("  "))
      end
    end
  end
end
