# frozen_string_literal: true

require "test_helper"
require "chaton/config"
require "chaton/workload"
require "chaton/telemetry/log"
require "support/http_client"
require "socket"
require "stringio"

# Runs a workload in this process, so that the boundary is under test itself:
# with CHATON_GC_STRESS=1 every allocation collects, from the moment a request is
# in the application's hands until its answer has arrived, while the client waits.
module WorkloadCase
  STRESS = ENV.key?("CHATON_GC_STRESS")
  # Everything takes so many times as long then.
  PATIENCE = STRESS ? 50 : 1
  # Between two looks at a condition.
  LOOK_EVERY_S = 0.001
  # Longest wait for a part of an answer.
  ANSWER_S = STRESS ? 120 : HttpClient::TIMEOUT_S

  # What a client allocates when it reads an answer is most of all, and is not what is tested: every allocation
  # collects only while it waits.
  module RelaxedClient
    private

    def fill(...)
      GC.stress = true if @stress
      super
    ensure
      @stress = GC.stress
      GC.stress = false
    end
  end
  RawClient.prepend(RelaxedClient) if STRESS

  # The text of a line is made without the boundary, and the backtrace of an error is hundreds of allocations.
  module RelaxedLog
    def exception(...) = unhurried { super }

    private

    def write(...) = unhurried { super }

    # The answer may have arrived meanwhile.
    def unhurried
      stress = GC.stress
      GC.stress = false
      yield
    ensure
      GC.stress = stress && WorkloadCase.answering
    end
  end

  class << self
    # @return [Boolean] whether the answer to a request is still to come
    attr_accessor :answering
  end
  self.answering = false

  def setup
    @output = StringIO.new
    @log = Chaton::Telemetry::Log.new(format: :human, level: :info, io: @output)
    @log.singleton_class.prepend(RelaxedLog) if STRESS
  end

  def teardown
    WorkloadCase.answering = GC.stress = false
    @workloads&.each { |workload, server| workload.stop(0.2) && server.close }
  end

  # @return [Integer] the port that serves the application
  def serve(threads: [1, 4], web: {}, hooks: {}, **changes, &app)
    server = TCPServer.new("127.0.0.1", 0)
    plan = Chaton::Config.load({ config_file: "-" }, env: {})
    changes = { queue_age_s: plan.queue_age_s * PATIENCE, **changes }
    # Some clients end their side at once.
    web = { abort_on_close_s: 0.0, **web }
    plan = plan.with(binds: [Chaton::Config::Bind.new(scheme: "tcp", host: "127.0.0.1", port: server.addr[1])],
                     threads_min: threads[0], threads_max: threads[1], hooks: plan.hooks.merge(hooks),
                     web: plan.web.dup.tap { |fields| web.each { |name, value| fields[name] = value } }, **changes)
    context = Chaton::Workload::ProcessContext.new(roles: [:web], scoreboard: Chaton::Native::Scoreboard.new(1),
                                                   slot: 0)
    @workload = Chaton::Workload.new(plan, app: stressed(app), sockets: [server], context: context, log: @log).start
    (@workloads ||= []) << [@workload, server]
    server.addr[1]
  end

  def stressed(app)
    return app unless STRESS

    lambda do |env|
      WorkloadCase.answering = GC.stress = true
      app.call(env)
    end
  end

  # The client's own allocations are not what is tested.
  def relaxed
    yield.tap { WorkloadCase.answering = GC.stress = false }
  end

  # @return [RawClient::Response]
  def get(port, path = "/", **options)
    relaxed { connect(port) { |client| client.get(path, **options) } }
  end

  def connect(port, &block) = HttpClient.open(port, timeout_s: ANSWER_S, &block)

  # Sends bytes as they are and reads to the end.
  def exchange(port, text)
    socket = TCPSocket.new("127.0.0.1", port)
    socket.write(text)
    socket.close_write
    relaxed { socket.read }
  ensure
    socket&.close
  end

  # Waits for a condition, which the caller's time limit bounds. What a look allocates is not what is tested.
  def eventually
    loop do
      WorkloadCase.answering = GC.stress = false
      met = yield
      return met if met

      sleep LOOK_EVERY_S
    end
  end
end
