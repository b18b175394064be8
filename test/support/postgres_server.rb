# frozen_string_literal: true

require "etc"
require "fileutils"
require "open3"
require "tmpdir"

# A real PostgreSQL server with its data in a scratch directory, reached by its socket.
# It needs a user that is not root.
class PostgresServer
  WAIT_S = 60
  # Debian's programs of the newest version, or those in the named folder.
  PROGRAMS = ENV.fetch("CHATON_TEST_POSTGRES") { Dir["/usr/lib/postgresql/*/bin"].max_by { |path| path[/\d+/].to_i } }
  MAKE_DATA = File.read(File.join(__dir__, "postgres_data.sh"))
  USER = "postgres"
  SETTINGS = { "listen_addresses" => "", "max_connections" => 200, "shared_buffers" => "256MB" }.freeze

  attr_reader :dir, :pid

  # @return [PostgresServer] for all tests of this process, each with a database of its own
  def self.shared
    @shared ||= new("fsync" => "off").start.tap { |server| Minitest.after_run { server.close } }
  end

  # @param settings [Hash{String=>Object}] of postgresql.conf
  def initialize(settings = {})
    @dir = Dir.mktmpdir("chaton-postgres", "/tmp")
    FileUtils.chown(USER, nil, @dir) if Process.uid.zero?
    @settings = SETTINGS.merge("unix_socket_directories" => @dir, **settings)
    out, status = Open3.capture2e({ "bin" => PROGRAMS, "folder" => @dir }, *as_user, "sh", "-c", MAKE_DATA, chdir: "/")
    raise "the data could not be made:\n#{out}" unless status.success?
  end

  # @return [self] once it responds
  def start
    words = @settings.flat_map { |name, value| ["-c", "#{name}=#{value}"] }
    @pid = Process.spawn(*as_user, program("postgres"), "-D", data, *words, out: [log_file, "a"], err: %i[child out],
                                                                            chdir: "/")
    @waiter = Process.detach(@pid)
    wait_until_ready
    self
  end

  # @return [String] for configurations
  def url(database = USER) = "postgres://#{USER}@/#{database}?host=#{@dir}"

  # @return [String] the name of a new database
  def create_database
    name = "test#{@databases = @databases.to_i + 1}"
    query("CREATE DATABASE #{name}") or raise "no database could be made; the server wrote:\n#{log}"
    name
  end

  # @return [String, nil] what a statement answers; nil if it fails
  def query(sql, database: USER)
    out, status = Open3.capture2e(program("psql"), "-XAtq", "-h", @dir, "-U", USER, "-d", database, "-c", sql)
    out.strip if status.success?
  end

  # Ends it at once, without a checkpoint: the next start recovers.
  def kill = finish("QUIT")

  # @return [String] its output
  def log = File.read(log_file)

  # Ends it, and removes its directory.
  def close
    kill if @pid
    FileUtils.remove_entry(@dir)
  end

  private

  def data = File.join(@dir, "data")

  def log_file = File.join(@dir, "log")

  def program(name) = File.join(PROGRAMS, name)

  # setpriv becomes the program, so that the pid is that of the server.
  def as_user = Process.uid.zero? ? ["setpriv", "--reuid=#{USER}", "--regid=#{USER}", "--clear-groups"] : []

  def wait_until_ready
    deadline = now + WAIT_S
    until query("SELECT 1") == "1"
      raise "PostgreSQL is not ready; it wrote:\n#{log}" if !@waiter.alive? || now > deadline

      sleep 0.02
    end
  end

  def finish(signal)
    Process.kill(signal, @pid)
    raise "PostgreSQL has not ended within #{WAIT_S} s" unless @waiter.join(WAIT_S)
  rescue Errno::ESRCH
    nil
  ensure
    @pid = nil
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
