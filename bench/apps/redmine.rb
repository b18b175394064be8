# frozen_string_literal: true

require "digest"
require "fileutils"
require "open3"
require "tmpdir"
require_relative "../../test/support/postgres_server"

module Bench
  module Apps
    # Redmine from Debian's package, unpacked below tmp/apps with the packages that it depends on installed, on a
    # PostgreSQL of its own. Its data are made once by redmine/seed.rb and kept as SQL.
    class Redmine
      ROOT = File.expand_path("../..", __dir__)
      FOLDER = File.join(ROOT, "tmp/apps/redmine")
      APP = File.join(FOLDER, "usr/share/redmine")
      SEED = File.expand_path("redmine/seed.rb", __dir__)
      # Another one for other data.
      DUMP = File.join(FOLDER, "seed-#{Digest::SHA256.file(SEED).hexdigest[0, 12]}.sql")
      # Parts of its dependencies that would set up a database server and a site.
      NOT_INSTALLED = /\A(?:redmine|dbconfig)/
      DIRECTORIES = %w[config files log tmp/cache tmp/imports tmp/thumbnails public/plugin_assets].freeze
      # More than the threads of any server that is measured; Redmine itself says nothing, which is 5.
      POOL = 20
      # Name, title, path and the mode of load.lua.
      Route = Struct.new(:name, :title, :path, :mode)
      ROUTES = [Route.new("list", "issue list", "/projects/alpha/issues", "get"),
                Route.new("show", "issue", "/issues/17", "get"),
                Route.new("wiki", "wiki page", "/projects/alpha/wiki/Page_3", "get"),
                Route.new("create", "create by API", "/issues.json", "redmine_issue")].freeze

      def self.instance = @instance ||= new
      private_class_method :new

      # Installs and seeds it unless it is there.
      # @return [self]
      def prepare
        return self if @postgres
        install unless File.exist?(rackup)
        @postgres = PostgresServer.new.start.tap { |server| at_exit { server.close } }
        seed unless File.exist?(DUMP)
        @postgres.query("CREATE DATABASE seeded") or raise "PostgreSQL made no database:\n#{@postgres.log}"
        psql("-d", "seeded", "-f", DUMP)
        self
      end

      def name = "redmine"
      def title = "Redmine #{version}"
      def rackup = File.join(APP, "config.ru")

      # @return [String] of Redmine itself
      def version = File.read(File.join(APP, "lib/redmine/version.rb")).scan(/(?:MAJOR|MINOR|TINY) *= *(\d+)/).join(".")

      # @param server [String] "puma" or "chaton", which is added to its Gemfile
      # @return [Hash{String => String}] for one server's processes; its data are a copy of those that were seeded
      def environment(server)
        @copies = @copies.to_i + 1
        @postgres.query("CREATE DATABASE copy#{@copies} TEMPLATE seeded") or raise "no copy:\n#{@postgres.log}"
        variables(server, "copy#{@copies}")
      end

      # @return [Hash{String => String}] of what processes had loaded
      def versions
        lock = File.read(File.join(APP, "Gemfile.chaton.lock"))
        { "redmine" => version, "rails" => lock[/^    rails \((.+)\)/, 1] }
      end

      private

      def variables(server, database)
        { "RAILS_ENV" => "production", "RACK_ENV" => "production", "SECRET_KEY_BASE" => "s" * 64,
          "BUNDLE_GEMFILE" => File.join(APP, "Gemfile.#{server}"), "SCHEMA" => "/dev/null", "REDMINE_LANG" => "en",
          "APP_DATABASE" => database, "APP_DATABASE_HOST" => @postgres.dir, "TZ" => "UTC" }
      end

      def install
        raise "#{name} has to be installed by root: run bin/apps #{name} as root once" unless Process.uid.zero?
        puts "installing #{name} and its packages (once)"
        apt("update") if run("apt-cache", "policy", "redmine").empty?
        wanted = %w[redmine redmine-pgsql postgresql puma]
        simulated = apt("-s", "install", "--no-install-recommends", *wanted)
        names = simulated.scan(/^Inst (\S+)/).flatten.grep_v(NOT_INSTALLED)
        apt("install", "-y", "--no-install-recommends", *names) if names.any?
        FileUtils.rm_rf(FOLDER)
        FileUtils.mkdir_p(FOLDER)
        Dir.mktmpdir do |folder|
          apt("download", "redmine", chdir: folder)
          run("dpkg", "-x", Dir[File.join(folder, "*.deb")].first, FOLDER)
        end
        configure
      end

      # What the package's postinst does, for a folder of our own. Each server has a Gemfile that adds its gem.
      def configure
        instance = File.join(APP, "instances/default")
        FileUtils.rm_f(%w[instances Gemfile.lock config/database.yml].map { |name| File.join(APP, name) })
        DIRECTORIES.each { |name| FileUtils.mkdir_p(File.join(instance, name)) }
        File.write(File.join(APP, "config/database.yml"), database_yml)
        FileUtils.cp(File.join(APP, "config/database.yml"), File.join(instance, "config"))
        { "puma" => %(gem "puma"), "chaton" => %(gem "chaton", path: "#{ROOT}") }.each do |server, line|
          File.write(File.join(APP, "Gemfile.#{server}"), %(eval_gemfile "Gemfile"\ngem "pg"\n#{line}\n))
        end
      end

      def database_yml
        <<~YAML
          production:
            adapter: postgresql
            encoding: utf8
            username: #{PostgresServer::USER}
            host: <%= ENV["APP_DATABASE_HOST"] %>
            database: <%= ENV["APP_DATABASE"] %>
            pool: #{POOL}
        YAML
      end

      def seed
        puts "seeding #{name} (once)"
        @postgres.query("CREATE DATABASE making") or raise "PostgreSQL made no database:\n#{@postgres.log}"
        given = variables("puma", "making")
        run(given, "bundle", "lock", "--local", chdir: APP)
        run(given.merge("BUNDLE_GEMFILE" => File.join(APP, "Gemfile.chaton")), "bundle", "lock", "--local", chdir: APP)
        run(given, "bundle", "exec", "rake", "db:migrate", chdir: APP)
        run(given, "bundle", "exec", "ruby", SEED, chdir: APP)
        File.write(DUMP, run(program("pg_dump"), *connection, "--no-owner", "making"))
      end

      def psql(*words) = run(program("psql"), *connection, "-q", "-v", "ON_ERROR_STOP=1", *words)
      def connection = ["-h", @postgres.dir, "-U", PostgresServer::USER]
      def program(name) = File.join(PostgresServer::PROGRAMS, name)

      def apt(*words, **options) = run({ "DEBIAN_FRONTEND" => "noninteractive" }, "apt-get", "-q", *words, **options)

      def run(*command, **options)
        out, status = Open3.capture2e(*command, **options)
        raise "#{command.grep(String).first(6).join(" ")} failed:\n#{out.lines.last(30).join}" unless status.success?
        out
      end
    end
  end
end
