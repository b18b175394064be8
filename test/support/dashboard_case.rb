# frozen_string_literal: true

require "open3"
require_relative "admin_client"
require_relative "jobs_test_case"

# For tests of the dashboard at the admin endpoint.
module DashboardCase
  include JobsTest

  WAIT_S = 60
  TOKEN = "0123456789abcdef"
  BEARER = { "Authorization" => "Bearer #{TOKEN}" }.freeze

  def self.included(base)
    super
    base.extend(JobsTest::EachStore)
  end

  def kind = :sqlite

  def time_limit_s = 300

  private

  def admin = "admin { bind \"unix://admin.sock\"; token #{TOKEN.dump} }\n"

  def boot_web(workers: 1, config: "", **options)
    server = boot(config: "workers #{workers}\n#{admin}#{config}", **options)
    server.eventually("it is ready", timeout_s: WAIT_S) { page(server, "/ready").status == 200 }
    server
  end

  def page(server, path, **options) = AdminClient.new(server.path("admin.sock")).get(path, **options)

  def post(server, path, headers = BEARER) = page(server, path, method: "POST", headers: headers)

  # @return [Array<String>] what jobs have noted
  def ran(server) = server.record.entries.map(&:id)

  def document(server) = page(server, "/dashboard.json", headers: BEARER).json

  def eventually_shown(server, &block)
    server.eventually("the document shows it", timeout_s: WAIT_S) { block.call(document(server)) }
  end

  # @return [Hash{String=>String}] the header of a browser that has opened a link
  def open_session(server)
    opened = page(server, server.control("dashboard")["url"].delete_prefix("http://localhost"))
    { "Cookie" => opened.headers["set-cookie"][/\A[^;]+/] }
  end

  # @return [Boolean] whether nothing is being replaced
  def calm(server)
    status = server.status
    status["memory"]["recycling"].empty? && status["restart"]&.fetch("state") != "running" &&
      status["workers"].all? { |worker| worker["state"] == "ready" }
  end

  def run_cli(server, *words)
    out, err, status = Open3.capture3({ "DISPLAY" => nil }, RbConfig.ruby, "-I", Server::LIB, Server::EXE, *words,
                                      chdir: server.dir)
    [out.chomp, err, status.exitstatus]
  end
end
