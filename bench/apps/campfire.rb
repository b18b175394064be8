# frozen_string_literal: true

require "cgi"
require_relative "../support/redis_server"
require_relative "app"
require_relative "campfire/tour"

module Bench
  module Apps
    # Campfire from its source, on SQLite and a Redis of its own. `bin/matrix rails apps campfire` unpacks the source
    # and builds the gems that it needs.
    class Campfire < App
      # The folder with the source, of bin/matrix.
      SOURCE = File.join(ENV.fetch("CHATON_APPS", ""), "campfire")
      FOLDER = folder("campfire")
      APP = File.join(FOLDER, "source")
      # Another one for other data.
      SEEDED = File.join(FOLDER, "seed-#{seed_digest("campfire")}.sqlite3")
      # Campfire's own Gemfile but for puma, which is in the Gemfile of one server, and for what no page needs: thruster
      # (a proxy), resque-pool (processes for jobs, which are only enqueued here), sentry, web-push (which sends
      # notifications), and image_processing with libvips (for uploaded pictures; none is uploaded here).
      GEMFILE = <<~RUBY
        gem "rails"
        gem "ostruct"
        gem "benchmark"
        gem "sqlite3"
        gem "redis", "~> 5.4"
        gem "resque"
        gem "propshaft"
        gem "importmap-rails"
        gem "turbo-rails"
        gem "stimulus-rails"
        gem "bcrypt"
        gem "rqrcode"
        gem "rails_autolink"
        gem "geared_pagination"
        gem "jbuilder"
        gem "net-http-persistent"
        gem "kredis"
        gem "platform_agent"
      RUBY
      # They configure gems that are left out.
      NOT_INITIALIZED = %w[vips web_push].freeze
      # Where processes find their data: file, what is there, what is written instead.
      EDITS = [["config/cable.yml", "redis://localhost:6379", %(<%= ENV["REDIS_URL"] %>)],
               ["config/database.yml", "storage/db/production.sqlite3", %(<%= ENV["APP_DATABASE"] %>)],
               ["config/database.yml", %(<%= ENV.fetch("RAILS_MAX_THREADS") { 10 } %>), POOL.to_s],
               # The cache of Rails 8.2 does not read REDIS_URL, and takes a Redis that is away for an empty one.
               ["config/environments/production.rb", "config.cache_store = :redis_cache_store",
                "config.cache_store = :redis_cache_store, " \
                '{ url: ENV["REDIS_URL"], error_handler: ->(exception:, **) { raise exception } }']].freeze
      # Resque would use a Redis at the usual port.
      RESQUE = %(Resque.redis = ENV.fetch("REDIS_URL")\n)
      # A Redis has so many databases; at most seven servers are up at the same time.
      REDIS_DATABASES = 16
      ROUTES = [Route.new("room", "room with 40 messages", "/rooms/1", "get"),
                Route.new("sidebar", "sidebar", "/users/me/sidebar", "get"),
                Route.new("search", "search that finds 13 messages", "/searches?q=room", "get"),
                Route.new("create", "message by a robot", "/rooms/1/#{CampfireTour::ROBOT}/messages",
                          "campfire_message")].freeze
      TOUR = CampfireTour

      def name = "campfire"
      def asked = "200 pages, forms, messages by a robot, files"
      def version = File.read(File.join(APP, "VERSION")).strip
      def probe = "/up"
      def versions = { **super, **%w[turbo-rails sqlite3 redis].to_h { |gem| [gem, locked(gem)] } }
      def request_headers = { "Cookie" => File.read(cookie(SEEDED)) }

      private

      def cookie(data) = "#{data}.cookie"

      # @param data [Array(String, Integer)] the file of SQLite, and the number of Redis's database
      def variables(data)
        file, number = data
        { "APP_DATABASE" => file, "REDIS_URL" => @redis.url.sub(/\d+\z/, number.to_s), "DISABLE_SSL" => "1",
          "SKIP_TELEMETRY" => "1", "VAPID_PUBLIC_KEY" => "public", "VAPID_PRIVATE_KEY" => "private",
          # It would log into the file in which {Application} looks for the lines about workers.
          "RAILS_LOG_LEVEL" => "warn" }
      end

      def install
        raise "'#{SOURCE}' has no source of Campfire: run bin/matrix rails apps campfire" unless File.exist?(SOURCE)
        puts "installing #{name} (once)"
        FileUtils.mkdir_p(FOLDER)
        FileUtils.cp_r(SOURCE, APP)
        FileUtils.rm(NOT_INITIALIZED.map { |name| File.join(APP, "config/initializers/#{name}.rb") })
        EDITS.each { |path, there, instead| edit(File.join(APP, path), there, instead) }
        File.write(File.join(APP, "config/initializers/resque.rb"), RESQUE)
        write_gemfiles(GEMFILE)
      end

      def edit(path, there, instead)
        text = File.read(path)
        raise "#{path} has no '#{there}': this Campfire is another one than was tried" unless text.include?(there)
        File.write(path, text.gsub(there, instead))
      end

      def start_services = @redis = RedisServer.new.start.tap { |server| at_exit { server.stop } }

      def seed
        puts "seeding #{name} (once)"
        making = File.join(FOLDER, "making.sqlite3")
        Dir["#{making}*"].each { |left| File.delete(left) }
        make([making, 0], %w[rails assets:precompile], %w[rails db:schema:load], ["ruby", App.seed_file(name)])
        FileUtils.mv(cookie(making), cookie(SEEDED))
        FileUtils.mv(making, SEEDED)
      end

      # What Redis keeps, such as fragments of pages, is new for each server.
      def copy(number)
        @copies_folder ||= Dir.mktmpdir("chaton-bench-campfire").tap { |dir| at_exit { FileUtils.rm_rf(dir) } }
        file = File.join(@copies_folder, "#{number}.sqlite3")
        FileUtils.cp(SEEDED, file)
        @redis.call("SELECT", number % REDIS_DATABASES)
        @redis.call("FLUSHDB")
        [file, number % REDIS_DATABASES]
      end
    end
  end
end
