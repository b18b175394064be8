# frozen_string_literal: true

require "test_helper"
require "support/event_client"
require "support/jobs_test_case"

# Texts that jobs say piece by piece, and pages that read them.
class TokenStreamsTest < Minitest::Test
  include JobsTest

  RACKUP = <<~RUBY
    require "chaton"
    run ->(env) { Chaton::EventStream.response(env, env["PATH_INFO"].delete_prefix("/"), history: true) }
  RUBY
  JOBS = <<~'RUBY'
    class Answer
      include Chaton::Job
      # @param how [String] pause, fail, or many
      def perform(how)
        Recorder.note("ran")
        Chaton::EventStream.open("answer") do |stream|
          100.times { |at| stream << "#{at} " }
          case how
          when "fail" then raise ArgumentError, "a secret"
          when "pause" then sleep 0.01 until File.exist?("go")
          when "bytes" then "ü€😀".bytes.each { |byte| stream << byte.chr }
          when "many" then 20_000.times { |at| stream << "#{at} " }
          end
          stream << "done"
          stream.flush
          Recorder.note("answer", stream.superseded? ? "superseded" : "said")
        end
      end
    end
  RUBY
  BEGIN_TEXT = Array.new(100) { |at| "#{at} " }.join

  def kind = :sqlite

  def test_a_page_gets_the_whole_text_in_few_messages
    server = start
    client = EventClient.new(server.port, "/answer").connect
    push(server, "many")
    types, text = read(client)
    assert_equal "#{BEGIN_TEXT}#{Array.new(20_000) { |at| "#{at} " }.join}done", text
    assert_equal %w[reset end], [types.first, types.last]
    # 109 KB in messages of 4 KB, and what came late.
    assert_operator types.count("message"), :<=, 60
    # A page that is loaded afterwards gets the same.
    all, same = read(EventClient.new(server.port, "/answer").connect)
    assert_equal [text, "end"], [same, all.last]
    assert_equal 0, server.stop
  end

  def test_a_piece_does_not_wait_for_the_next_one_and_a_character_does
    server = start
    push(server, "pause")
    client = EventClient.new(server.port, "/answer").connect
    text = +""
    until text == BEGIN_TEXT
      event = client.next
      text << event.data if event.type == "message"
    end
    server.write("go", "")
    assert_equal "done", read(client).last
    client.close
    push(server, "bytes")
    client = EventClient.new(server.port, "/answer").connect
    # Behind the text of the first job.
    assert_equal "#{BEGIN_TEXT}ü€😀done", Array.new(2) { read(client) }.last.last
    assert_equal 0, server.stop
  end

  def test_a_job_whose_worker_is_killed_begins_anew
    server = start
    push(server, "pause")
    client = EventClient.new(server.port, "/answer").connect
    nil until client.next.data.end_with?("99 ")
    server.signal("KILL", jobs_worker(server))
    server.eventually("it runs again") { server.record.ids.size == 2 }
    server.write("go", "")
    late = EventClient.new(server.port, "/answer").connect
    [client, late].each do |one|
      types, text = read(one)
      assert_equal "#{BEGIN_TEXT}done", text
      assert_includes types, "reset"
      assert_equal "end", types.last
    end
    assert_equal 0, server.stop
  end

  def test_a_second_run_ends_the_text_of_the_first_which_goes_on
    server = start
    push(server, "pause")
    client = EventClient.new(server.port, "/answer").connect
    2.times do |at|
      push(server, "pause") if at == 1
      text = +""
      text << client.next.data until text == BEGIN_TEXT
    end
    server.write("go", "")
    types, text = read(client)
    assert_equal "#{BEGIN_TEXT}done", "#{BEGIN_TEXT}#{text}"
    server.eventually("both have ended") { %w[said superseded].all? { |event| server.record.count(event) == 1 } }
    assert_equal %w[message end], types.last(2)
    late = EventClient.new(server.port, "/answer").connect
    assert_equal ["#{BEGIN_TEXT}done", 2], read(late).then { |all, whole| [whole, all.count("reset")] }
    push(server, "pause")
    # Nothing was said in between.
    [client, late].each { |one| assert_equal "reset", one.next.type }
    assert_equal 0, server.stop
  end

  def test_a_job_that_fails_says_so_without_its_reason
    server = start
    client = EventClient.new(server.port, "/answer").connect
    push(server, "fail")
    types, text = read(client)
    assert_equal ["failed", BEGIN_TEXT], [types.last, text]
  end

  private

  def start = boot_jobs(JOBS, rackup: RACKUP, workers: "web: 1, jobs: 1", config: JobsServer::QUICK)

  def push(server, how) = console(server).run("Answer.perform_async(#{how.dump})")

  def jobs_worker(server)
    status = server.status
    status["workers"].find { |worker| worker["roles"] == ["jobs"] }["pid"]
  end

  # @return [Array(Array<String>, String)] the types of all events until the end, and the text since the last reset
  def read(client)
    types = []
    text = +""
    until %w[end failed].include?(types.last)
      event = client.next
      types << event.type
      text = +"" if event.type == "reset"
      text << event.data if event.type == "message"
    end
    [types, text]
  end
end
