# frozen_string_literal: true

require_relative "workload_case"
require "support/raw_client"

# A workload that streams request bodies, and what its application and its clients do.
module StreamedBodyCase
  include WorkloadCase

  HEAD = "POST /up/1 HTTP/1.1\r\nHost: x\r\n"
  CHUNKED = "#{HEAD}Transfer-Encoding: chunked\r\n\r\n".freeze

  def setup
    super
    @seen = Queue.new
    @gate = Queue.new
    @clients = []
  end

  def teardown
    @clients.each(&:close)
    super
  end

  private

  def stream(**web, &app)
    serve(web: { stream_bodies: ["/up/*", "/exact"], **web }, &app)
  end

  def answer(body = "done") = [200, {}, [body.to_s]]

  # Reads three bytes and then the rest, which fails.
  def reading(env)
    @seen << env["rack.input"].read(3)
    env["rack.input"].read
  rescue Chaton::RequestBodyError => e
    @seen << e.message
    raise
  end

  def client_of(port) = RawClient.new(port, timeout_s: ANSWER_S).tap { |client| @clients << client }

  def seen = relaxed { @seen.pop }

  def running = @workload.status[:pool][:running]
end
