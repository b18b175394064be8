# frozen_string_literal: true

require "test_helper"
require "chaton/config"
require "chaton/workload/jobs_database"
require "fileutils"
require "tmpdir"

class JobsDatabaseTest < Minitest::Test
  Config = Struct.new(:name, :configuration_hash)

  def setup
    @root = File.realpath(Dir.mktmpdir("chaton-database"))
    FileUtils.mkdir_p(File.join(@root, "storage"))
  end

  def teardown = FileUtils.remove_entry(@root)

  # Checks a store, or a log, beside databases of ActiveRecord.
  def check(url, *databases, option: :store)
    plan = Chaton::Config.load({ :config_file => "-", option => url }, env: {}, root: @root)
    configs = databases.each_with_index.map { |one, index| Config.new("db#{index}", one) }
    record = Class.new { define_singleton_method(:configurations) { Struct.new(:configurations).new(configs) } }
    with_constants(record) { Chaton::Workload::JobsDatabase.check(plan) }
  end

  def with_constants(record)
    space = defined?(::ActiveRecord) ? ::ActiveRecord : Object.const_set(:ActiveRecord, made = Module.new)
    before = space.const_defined?(:Base, false) && space.const_get(:Base)
    space.send(:remove_const, :Base) if before
    space.const_set(:Base, record)
    yield
  ensure
    space.send(:remove_const, :Base)
    space.const_set(:Base, before) if before
    Object.send(:remove_const, :ActiveRecord) if made
  end

  def refused(*arguments, **rest) = assert_raises(Chaton::ConfigError) { check(*arguments, **rest) }.message

  def test_a_file_of_its_own_is_accepted
    check("sqlite://storage/jobs.db", { adapter: "sqlite3", database: "storage/app.db" })
    check("sqlite://storage/jobs.db", { adapter: "sqlite3", database: ":memory:" })
    check("sqlite://storage/jobs.db", { adapter: "postgresql", database: "storage/jobs.db" })
    check("redis://127.0.0.1", { adapter: "sqlite3", database: "storage/jobs.db" })
  end

  def test_a_directory_that_does_not_exist_is_refused
    assert_match(%r{the directory of the store of jobs, #{@root}/storge/jobs.db, does not exist},
                 refused("sqlite://storge/jobs.db"))
    FileUtils.rm_r(File.join(@root, "storage"))
    check("sqlite://storage/jobs.db")
  end

  def test_the_same_path_is_refused
    text = refused("sqlite://storage/jobs.db", { adapter: "postgresql", database: "x" },
                   { adapter: "sqlite3", database: "storage/jobs.db" })
    assert_match(/#{@root}.storage.jobs.db, is ActiveRecord's database "db1" too: two copies of SQLite/, text)
    refused("sqlite://storage/jobs.db", { adapter: "sqlite3", database: "file:storage/jobs.db?mode=rwc" })
  end

  def test_a_log_is_checked_like_a_store
    text = refused("sqlite://storage/log.db", { adapter: "sqlite3", database: "storage/log.db" }, option: :broker)
    assert_match(/the log of records, #{@root}.storage.log.db, is ActiveRecord's database "db0" too/, text)
    refused("log://storage", { adapter: "sqlite3", database: "storage/log.db" }, option: :broker)
    assert_match(/correct streams \{ broker … \}/, refused("sqlite://storge/log.db", option: :broker))
    check("log://storge", { adapter: "sqlite3", database: "storage/log.db" }, option: :broker)
    check("kafka://127.0.0.1:9", { adapter: "sqlite3", database: "storage/log.db" }, option: :broker)
  end

  def test_the_same_file_under_another_name_is_refused
    file = File.join(@root, "storage/app.db")
    File.write(file, "")
    File.symlink(file, File.join(@root, "soft.db"))
    File.link(file, File.join(@root, "hard.db"))
    refused("sqlite://soft.db", { adapter: "sqlite3", database: file })
    refused("sqlite://hard.db", { adapter: "sqlite3", database: file })
  end
end
