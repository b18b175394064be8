# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/controller"
require "chaton/supervisor/control_commands"

# A request of `chaton profile`, from the control socket to the workers.
class WorkerRequestTest < Minitest::Test
  # A worker that notes its orders.
  class Child
    attr_reader :index, :commands

    def initialize(index, ready: true, reads: true)
      @index = index
      @ready = ready
      @reads = reads
      @commands = []
    end

    def ready? = @ready
    def command(hash) = @reads && @commands.push(hash) && true
  end

  WorkerSet = Struct.new(:children)

  def test_every_ready_worker_gets_the_command
    children = [Child.new(0), Child.new(1, ready: false), Child.new(2), Child.new(3, reads: false)]
    answer = ask(children, "every" => 5, "duty" => 0.5, "window_ms" => nil, "command" => "ask", "shell" => "rm")
    assert_equal [true, [0, 2]], answer.values_at(:ok, :asked)
    told = { "do" => "ask", "action" => "start", "reply_to" => "/tmp/s", "every" => 5, "duty" => 0.5 }
    assert_equal [[told], [], [told], []], children.map(&:commands)
  end

  def test_one_worker
    children = [Child.new(0), Child.new(1)]
    assert_equal [1], ask(children, "worker" => 1)[:asked]
    assert_equal({ ok: false, error: "there is no worker 2 that is ready; `chaton status` lists them" },
                 ask(children, "worker" => 2))
    assert_match(/no worker is ready/, ask([])[:error])
  end

  def test_invalid_requests_are_refused
    { { "action" => "dance" } => /one of start, stop, status, report/, { "worker" => "1" } => /worker must be a number/,
      { "every" => 1.5 } => /every must be a number from 1 to 1000000/, { "duty" => 2 } => /duty must be/,
      { "window_ms" => "1" } => /window_ms must be a number from 0.1 to 1000.0/, { "every" => 0 } => /every must be/,
      { "reply_to" => nil } => /absolute path/, { "reply_to" => "s" } => /absolute path/,
      { "reply_to" => "/#{"x" * 107}" } => /107 bytes/ }.each do |wrong, sentence|
      children = [Child.new(0)]
      answer = ask(children, wrong)
      assert_match sentence, answer[:error]
      assert_equal [false, []], [answer[:ok], children.first.commands]
    end
  end

  private

  def ask(children, more = {})
    controller = Chaton::Supervisor::Controller.allocate
    controller.instance_variable_set(:@worker_set, WorkerSet.new(children))
    request = { "command" => "ask", "action" => "start", "worker" => nil, "reply_to" => "/tmp/s", **more }
    Chaton::Supervisor::ControlCommands.new(controller).call(request)
  end
end
