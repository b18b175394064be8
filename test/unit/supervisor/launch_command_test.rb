# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require "chaton/supervisor/launch_command"

class RelaunchTest < Minitest::Test
  SCRIPT = <<~RUBY
    require "json"
    require "socket"
    fd = JSON.parse(ENV.fetch("CHATON_FDS")).fetch("tcp://x")
    File.write("out", JSON.generate(argv: ARGV, port: TCPServer.for_fd(fd).addr[1], env: ENV.to_h, dir: Dir.pwd))
  RUBY

  def setup
    @dir = File.realpath(Dir.mktmpdir)
    File.write("#{@dir}/program.rb", SCRIPT)
    @server = TCPServer.new("127.0.0.1", 0)
    @before = ENV.to_h
  end

  def teardown
    ENV.replace(@before)
    @server.close
    FileUtils.remove_entry(@dir)
  end

  def result
    JSON.parse(File.read("#{@dir}/out"))
  end

  def test_a_start_beside_us
    ENV.update("LISTEN_FDS" => "1", "CHATON_MEMORY_RESTARTS" => "1 1", "NOTIFY_SOCKET" => "/n", "KEPT" => "yes")
    launch_command = Dir.chdir(@dir) { Chaton::Supervisor::LaunchCommand.new(%w[-w 2], program: "program.rb") }
    ENV["FROM_THE_APP"] = "1"
    Process.wait(launch_command.spawn({ "tcp://x" => @server }, ios: [], environment: { "MARK" => "m" }))
    assert_equal %w[-w 2], result["argv"]
    assert_equal @server.addr[1], result["port"]
    assert_equal @dir, result["dir"]
    env = result["env"]
    assert_equal %w[yes m], env.values_at("KEPT", "MARK")
    assert_empty env.keys & %w[LISTEN_FDS CHATON_MEMORY_RESTARTS NOTIFY_SOCKET FROM_THE_APP]
  end

  def test_a_start_in_place_keeps_the_pid_and_the_managers_socket
    ENV["NOTIFY_SOCKET"] = "/n"
    pid = fork do
      launch_command = Dir.chdir(@dir) { Chaton::Supervisor::LaunchCommand.new([], program: "program.rb") }
      launch_command.exec({ "tcp://x" => @server }, environment: { "MARK" => "m" })
    end
    assert_equal pid, Process.wait(pid)
    assert_equal @server.addr[1], result["port"]
    assert_equal %w[/n m], result["env"].values_at("NOTIFY_SOCKET", "MARK")
  end

  def test_a_symbolic_link_is_followed_anew
    %w[one two].each do |name|
      Dir.mkdir("#{@dir}/#{name}")
      File.write("#{@dir}/#{name}/program.rb", SCRIPT)
    end
    File.symlink("one", "#{@dir}/current")
    ENV["PWD"] = "#{@dir}/current"
    launch_command = Dir.chdir("#{@dir}/current") { Chaton::Supervisor::LaunchCommand.new([], program: "program.rb") }
    File.unlink("#{@dir}/current")
    File.symlink("two", "#{@dir}/current")
    Process.wait(launch_command.spawn({ "tcp://x" => @server }, ios: [], environment: {}))
    assert_path_exists "#{@dir}/two/out"
  end
end
