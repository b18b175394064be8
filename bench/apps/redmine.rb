# frozen_string_literal: true

require "tmpdir"
require_relative "../../test/support/postgres_server"
require_relative "app"
require_relative "redmine/tour"

module Bench
  module Apps
    # Redmine from Debian's package, unpacked below tmp/apps with the packages that it depends on installed, on a
    # PostgreSQL of its own. Its data are made once by redmine/seed.rb and kept as SQL.
    class Redmine < App
      FOLDER = folder("redmine")
      APP = File.join(FOLDER, "usr/share/redmine")
      # Another one for other data.
      SEEDED = File.join(FOLDER, "seed-#{seed_digest("redmine")}.sql")
      # Parts of its dependencies that would set up a database server and a site.
      NOT_INSTALLED = /\A(?:redmine|dbconfig)/
      # What its links to other packages' files lead to, from the folder in which it is unpacked.
      LINKED = %w[javascript ruby-jquery-rails].freeze
      DIRECTORIES = %w[config files log tmp/cache tmp/imports tmp/thumbnails public/plugin_assets].freeze
      ROUTES = [Route.new("list", "issue list", "/projects/alpha/issues", "get"),
                Route.new("show", "issue", "/issues/17", "get"),
                Route.new("wiki", "wiki page", "/projects/alpha/wiki/Page_3", "get"),
                Route.new("create", "create by API", "/issues.json", "redmine_issue")].freeze
      TOUR = RedmineTour

      def name = "redmine"
      def asked = "200 pages, forms, API, files"

      # @return [String] of Redmine itself
      def version = File.read(File.join(APP, "lib/redmine/version.rb")).scan(/(?:MAJOR|MINOR|TINY) *= *(\d+)/).join(".")

      private

      def variables(database)
        { "SCHEMA" => "/dev/null", "REDMINE_LANG" => "en", "APP_DATABASE" => database,
          "APP_DATABASE_HOST" => @postgres.dir }
      end

      def start_services = @postgres = PostgresServer.new.start.tap { |server| at_exit { server.close } }

      def copy(number)
        @template ||= create("seeded").tap { |database| psql("-d", database, "-f", SEEDED) }
        create("copy#{number}", "TEMPLATE #{@template}")
      end

      # @return [String] the database's name
      def create(database, how = "")
        @postgres.query("CREATE DATABASE #{database} #{how}") or raise "PostgreSQL made no database:\n#{@postgres.log}"
        database
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

      # What the package's postinst does, for a folder of our own.
      def configure
        instance = File.join(APP, "instances/default")
        FileUtils.rm_f(%w[instances Gemfile.lock config/database.yml].map { |name| File.join(APP, name) })
        DIRECTORIES.each { |name| FileUtils.mkdir_p(File.join(instance, name)) }
        LINKED.each { |name| FileUtils.ln_s("/usr/share/#{name}", File.dirname(APP)) }
        File.write(File.join(APP, "config/database.yml"), database_yml)
        FileUtils.cp(File.join(APP, "config/database.yml"), File.join(instance, "config"))
        write_gemfiles(%(eval_gemfile "Gemfile"\ngem "pg"))
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
        make(create("making"), %w[rake db:migrate], ["ruby", App.seed_file(name)])
        File.write(SEEDED, run(program("pg_dump"), *connection, "--no-owner", "making"))
      end

      def psql(*words) = run(program("psql"), *connection, "-q", "-v", "ON_ERROR_STOP=1", *words)
      def connection = ["-h", @postgres.dir, "-U", PostgresServer::USER]
      def program(name) = File.join(PostgresServer::PROGRAMS, name)

      def apt(*words, **options) = run({ "DEBIAN_FRONTEND" => "noninteractive" }, "apt-get", "-q", *words, **options)
    end
  end
end
