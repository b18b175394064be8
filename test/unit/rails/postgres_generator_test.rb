# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "open3"
require "rbconfig"
require "support/postgres_server"
require "tmpdir"

# `rails g chaton:postgres`, and its migration on a server.
class PostgresGeneratorTest < Minitest::Test
  LIB = File.expand_path("../../../lib", __dir__)

  def setup
    needs_gems "nokogiri"
    @root = Dir.mktmpdir("chaton-generator")
  end

  def teardown
    FileUtils.remove_entry(@root) if @root
  end

  def test_the_migration_makes_the_tables_that_a_store_uses
    server = PostgresServer.shared
    database = server.create_database
    generate
    2.times { migrate(server.dir, database) }
    assert_equal migrations.first[/\d+/], server.query("SELECT number FROM chaton.version", database: database)
    by_migration = columns(server, database)
    other = server.create_database
    out, status = Open3.capture2e(RbConfig.ruby, File.expand_path("../../../exe/chaton", __dir__), "jobs", "migrate",
                                  "--store", server.url(other), chdir: @root)
    assert_predicate status, :success?, out
    assert_equal columns(server, other), by_migration
  end

  def test_a_second_run_makes_no_second_migration
    2.times { generate }
    assert_equal 1, migrations.size
    assert_match(/\Amigrate_chaton_jobs_to_\d+\.rb\z/, migrations.first)
  end

  private

  # @return [Array<String>] names without their times
  def migrations = Dir[File.join(@root, "db/migrate/*")].map { |path| File.basename(path)[/[a-z].*/] }

  def columns(server, database)
    tables = "SELECT table_name, column_name, data_type, column_default FROM information_schema.columns " \
             "WHERE table_schema='chaton' ORDER BY 1, 2"
    indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname='chaton' ORDER BY 1"
    [tables, indexes].map { |sql| server.query(sql, database: database) }
  end

  def generate
    ruby(<<~RUBY)
      require "rails"
      require "rails/generators"
      require "active_record"
      require "chaton"
      Rails::Generators.invoke("chaton:postgres", [], destination_root: Dir.pwd)
    RUBY
  end

  def migrate(host, database)
    ruby(<<~RUBY)
      require "active_record"
      require "chaton"
      ActiveRecord::Base.establish_connection(adapter: "postgresql", host: #{host.inspect}, username: "postgres",
                                              database: #{database.inspect})
      own = [ActiveRecord::SchemaMigration] if ActiveRecord.version < Gem::Version.new("7.1")
      ActiveRecord::MigrationContext.new("db/migrate", *own).migrate
    RUBY
  end

  def ruby(code)
    out, status = Open3.capture2e(RbConfig.ruby, "-W0", "-I", LIB, "-e", code, chdir: @root)
    assert_predicate status, :success?, out
  end
end
