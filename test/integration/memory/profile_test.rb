# frozen_string_literal: true

require "test_helper"
require "support/profile_command"
require "chaton/cli/profile/answer_socket"
require "zlib"

# `chaton profile` with a real server: it finds the leak of examples/leak, fails no request, and leaves no files behind.
class TraceTest < Minitest::Test
  include ServerTest
  include ProfileCommand

  # Notes of a thousand bytes each: far more than the garbage that waits for its collection.
  LEAKED = 6_000
  SWITCHES = 200

  def time_limit_s = 180

  def test_it_finds_the_leak_by_its_line
    server = boot_leak
    out = profile!(server, "start", "--every", "2", "--duty", "1")
    assert_match(/^worker 0 \(pid \d+\) profiles: 1 of 2 objects, 100.0 % .*\nworker 1 \(pid \d+\) profiles/, out)
    leak(server)
    assert_leak_leads(profile!(server, "report", "--format", "collapsed"))
    refute_match(/#{at_leak}/, heaviest(profile!(server, "report", "--format", "collapsed", "--by", "allocated")))
    text = profile!(server, "report")
    assert_operator text.index(/config\.ru:\d+/), :<=, text.index(at_leak), text
    assert_equal text[/config\.ru:\d+/], at_leak, text
    assert_viewers_read(server)
    # One worker may have had nearly all of the requests.
    assert_operator profile_status(server).sum { |one| one["sampled"] }, :>, LEAKED / 4
    assert_match(/^worker 1 \(pid \d+\) has stopped/, profile!(server, "stop"))
    assert_equal [false, false], profile_status(server).map { |one| one["running"] }
    assert_leak_leads(profile!(server, "report", "--format", "collapsed"))
    assert_clean_end(server)
  end

  def test_switched_on_and_off_under_load
    server = boot_leak
    load = ClientLoad.new(server.port)
    switch(server) until load.answered.positive?
    SWITCHES.times { switch(server) }
    assert_empty load.stop.failures
    assert_operator load.answered, :>, SWITCHES
    assert_equal 2, server.workers.size
    refute_match(/ (WARN|ERROR) /, server.log)
    assert_clean_end(server)
  ensure
    load&.stop
  end

  def test_a_killed_worker_loses_only_its_own_profile
    server = boot_leak
    profile!(server, "start", "--every", "2", "--duty", "1")
    leak(server)
    # One worker may have had nearly all of the requests: what that one has seen is to stay.
    lost, kept = profile_status(server).sort_by { |one| one["sampled"] }.map { |one| one["worker"] }
    kill_worker(server, lost)
    running = profile_status(server).to_h { |one| one.values_at("worker", "running") }
    assert_equal({ kept => true, lost => false }, running)
    out, err, status = chaton_profile(server, "report", "--format", "collapsed")
    assert_leak_leads(out)
    assert_match(/\Achaton: worker #{lost} \(pid \d+\): it has not profiled yet; run `chaton profile start`\n\z/, err)
    assert_equal 0, status
    started = profile!(server, "start")
    assert_match(/^worker #{kept} .* was profiling already/, started)
    assert_match(/^worker #{lost} \(pid \d+\) profiles/, started)
    assert_clean_end(server)
  end

  def test_one_worker_and_an_unknown_one
    server = boot_leak
    assert_match(/\Aworker 1 \(pid #{server.workers[1]}\) profiles[^\n]*\n\z/,
                 profile!(server, "start", "--worker", "1"))
    assert_equal [false, true], profile_status(server).map { |one| one["running"] }
    _, err, status = chaton_profile(server, "status", "--worker", "7")
    assert_equal 1, status
    assert_equal "chaton: there is no worker 7 that is ready; `chaton status` lists them\n", err
  end

  def test_tracing_from_the_start_if_configured
    ["workers 2", "workers 0"].each do |workers|
      server = boot(config: "#{workers}\nconstants_for_tests profile_every: 7\nmemory { profile true }")
      statuses = profile_status(server)
      assert_equal [true, 7], statuses.map { |one| one.values_at("running", "every") }.uniq.flatten
      assert_equal server.get.body, "hello"
      assert_clean_end(server)
    end
  end

  def test_errors_are_reported
    server = boot_leak
    { %w[report --format ppof] => /--format must be .* not "ppof"; did you mean pprof\?/,
      %w[start --duty 2] => /--duty must be a number from 0.001 to 1/,
      %w[report] => /worker 0 .*: it has not profiled yet; run `chaton profile start`/ }.each do |argv, sentence|
      out, err, status = chaton_profile(server, *argv)
      assert_equal ["", 1], [out, status]
      assert_match sentence, err
    end
    assert_clean_end(server)
    assert_match(/no server listens at/, chaton_profile(server, "status")[1])
  end

  private

  def boot_leak
    # A larger eden would hold more garbage than leaks.
    boot(rackup: nil, args: [LEAK], config: "workers 2\nthreads 1, 3\nmemory { eden '4M' }")
  end

  def at_leak = "config.ru:#{LEAK_LINE}"

  def kill_worker(server, index)
    killed = server.workers[index]
    server.signal("KILL", killed)
    server.eventually("a new worker") do
      pids = server.workers
      pids.size == 2 && pids[index] != killed && ready?(server)
    end
  end

  def ready?(server) = server.status["workers"].all? { |worker| worker["ready"] }

  # Until so many notes are kept, and garbage was collected many times.
  def leak(server)
    load = ClientLoad.new(server.port)
    server.eventually("so many requests", timeout_s: 60) { load.answered >= LEAKED }
    assert_empty load.stop.failures
  ensure
    load&.stop
  end

  # As `chaton profile` does it, without the half second it takes to load.
  def switch(server)
    %w[start stop].each do |action|
      Chaton::CLI::Profile::AnswerSocket.open(beside: server.path("tmp/chaton.sock")) do |mailbox|
        asked = Chaton::Control::Client.new(server.path("tmp/chaton.sock"))
          .call("ask", action: action, reply_to: mailbox.path, every: 1, duty: 1.0)["asked"]
        answers = mailbox.collect(asked.size, 10)
        assert_equal [[0, true, action == "start"], [1, true, action == "start"]],
                     answers.map { |one| [one.worker, one.ok?, one.status["running"]] }.sort_by(&:first)
      end
    end
  end

  # The heaviest of lines such as "main;middle;leaf 1234".
  def heaviest(collapsed) = collapsed.lines.max_by { |line| line[/ ([\d.]+)$/, 1].to_f }

  def assert_leak_leads(collapsed) = assert_includes heaviest(collapsed), at_leak

  def assert_viewers_read(server)
    pprof, = chaton_profile(server, "report", "--format", "pprof", binmode: true)
    assert_includes Zlib.gunzip(pprof), LEAK
    profile!(server, "report", "--output", "profile.svg")
    picture = server.read("profile.svg")
    assert_includes picture, "config.ru"
    assert_match(/<svg\b/, picture)
    # What a picture loads, as opposed to a name space or an address somebody may follow.
    refute_match(%r{(?:src|href)\s*=\s*["']?(?:https?:)?//|url\((?!#)|@import|fetch\(|XMLHttpRequest}i, picture)
  end

  def assert_clean_end(server)
    assert_equal 0, server.stop
    assert_empty Dir.children(server.path("tmp"))
  end
end
