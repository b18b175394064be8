# frozen_string_literal: true

require "socket"

# A workload with the interface of Chaton::Workload and a plain threaded HTTP/1.1 loop. Tests of fork, supervisor
# channel, signals and stop use it without the native engine.
class FakeWorkload
  def initialize(plan, app:, sockets:, context:, log: nil)
    @plan = plan
    @app = app
    # The engine has its own copies, too.
    @sockets = sockets.map(&:dup)
    @scoreboard = context.scoreboard
    @slot = context.slot
    @channel = context.channel
    @log = log
    @quiet = false
    @running = 0
    @clients = []
    @lock = Mutex.new
  end

  def on_orphan(&block)
    @orphan = block
  end

  def start
    @wake, @interrupt = IO.pipe
    @acceptor = Thread.new { accept_loop }
    @support_thread = Thread.new { answer_pings } if @channel
    count(0)
    yield
    self
  end

  def quiet
    @quiet = true
    @interrupt.close unless @interrupt.closed?
  end

  def stop(deadline_s)
    quiet
    @acceptor.join
    deadline = now + deadline_s
    threads = @lock.synchronize { @clients.dup }
    threads.all? { |thread| thread.join([deadline - now, 0].max) }
  end

  def status
    { queued: 0 }
  end

  private

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  def accept_loop
    until @quiet
      ready, = IO.select([*@sockets, @wake])
      (ready - [@wake]).each do |server|
        client = server.accept_nonblock(exception: false)
        serve(client) unless client == :wait_readable
      end
    end
  end

  def serve(client)
    thread = Thread.new do
      converse(client)
    rescue SystemCallError
      nil
    ensure
      client.close
      @lock.synchronize { @clients.delete(Thread.current) }
    end
    @lock.synchronize { @clients << thread if thread.alive? }
  end

  # Serves a connection until the client closes it. When the workload becomes quiet, it closes idle connections, but
  # none in mid-request.
  def converse(client)
    while IO.select([client, @wake])&.first&.include?(client) && (line = client.gets)
      headers = []
      while (header = client.gets) && header != "\r\n"
        headers << header
      end
      path = line.split[1]
      status, _headers, body = run({ "PATH_INFO" => path, "REQUEST_METHOD" => "GET" })
      text = body.to_enum.to_a.join
      close = @quiet || headers.any?(/\Aconnection: close/i)
      client.write("HTTP/1.1 #{status} OK\r\ncontent-length: #{text.bytesize}\r\n" \
                   "#{"connection: close\r\n" if close}\r\n#{text}")
      break if close
    end
  end

  def run(env)
    count(1)
    @app.call(env)
  ensure
    count(-1)
  end

  def count(difference)
    @lock.synchronize do
      @running += difference
      @scoreboard&.write(@slot, pid: Process.pid, accepting: 1, running: @running)
    end
  end

  def answer_pings
    while (bytes = @channel.readpartial(64))
      bytes.each_char { @channel.write("rg") }
    end
  rescue EOFError, SystemCallError
    @orphan&.call
  end
end
