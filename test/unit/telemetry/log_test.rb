# frozen_string_literal: true

require "test_helper"
require "open3"
require "json"
require "stringio"
require "chaton/logger"
require "chaton/telemetry/log"

class LogTest < Minitest::Test
  def setup
    @output = StringIO.new
  end

  def log(**options)
    Chaton::Telemetry::Log.new(io: @output, **options)
  end

  def test_a_line_for_a_person
    log.info("worker ready", worker: 0, name: "a b", reason: nil)
    time, rest = @output.string.split(" [", 2)
    assert_match(/\A\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\z/, time)
    assert_equal %(#{Process.pid}] INFO  worker ready  worker=0 name="a b" reason=""\n), rest
  end

  def test_a_line_for_a_machine
    log(format: :json).warn("full", queued: 3, what: "GET /é")
    record = JSON.parse(@output.string)
    assert_equal({ "level" => "warn", "message" => "full", "queued" => 3, "what" => "GET /é", "pid" => Process.pid },
                 record.except("time"))
  end

  # A batch, as far as the log knows it.
  Batch = Struct.new(:describe)

  def test_a_line_names_the_work_in_which_it_is_written
    running = Chaton::Telemetry::RunningWork.begin
    running.work = Batch.new("orders/0 @1-9")
    log.info("begun")
    log.info("named", batch: "by itself")
    running.work = nil
    log.info("over")
    assert_equal ["begun  batch=\"orders/0 @1-9\"", "named  batch=\"by itself\"", "over"],
                 @output.string.lines.map { |line| line[/INFO  (.*)$/, 1] }
  ensure
    Thread.current.thread_variable_set(:chaton_running_work, nil)
  end

  def test_the_logger_of_applications_writes_bytes_that_are_no_text
    Chaton::Logger.new(@output).info(+"got \xff\nand more")
    assert_match(/INFO  got \?$/, @output.string)
  end

  def test_the_logger_of_applications_has_the_same_lines
    logger = Chaton::Logger.new(@output, progname: "shop")
    logger.debug { "one" }
    logger.error(KeyError.new("no key"))
    logger.level = :warn
    logger.info("unseen")
    logger.warn("two\nlines")
    assert_equal ["DEBUG one  progname=shop", "ERROR no key (KeyError)  progname=shop", "WARN  two  progname=shop",
                  "    lines"], @output.string.lines.map { |line| line.chomp.sub(/\A\d.*?\] /, "") }
  end

  def test_rails_silences_the_logger_of_applications
    needs_gems "bigdecimal"
    script = <<~RUBY
      require "chaton"
      require "logger"
      first = Chaton::Logger.new
      require "active_support"
      require "active_support/tagged_logging"
      logger = ActiveSupport::TaggedLogging.new(Chaton::Logger.new)
      logger.silence { logger.info "GET /up" }
      logger.tagged("shop") { logger.info "seen" }
      first.info "first"
    RUBY
    lib = File.expand_path("../../../lib", __dir__)
    output, status = Open3.capture2e("ruby", "-W0", "-I", lib, "-", stdin_data: script)
    assert_predicate status, :success?, output
    assert_equal ["[shop] seen", "first"], output.lines.map { |line| line[/INFO  (.*)$/, 1] }
  end

  def test_below_its_level_nothing_is_written
    one = log(level: :warn)
    one.debug("a")
    one.info("b")
    one.error("c")
    assert_equal 1, @output.string.lines.size
  end

  def test_nothing_can_forge_a_line
    log.info("one\ntwo", path: "/x\n2025 [1] INFO  forged")
    log(format: :json).info("one\ntwo", path: "a\nb")
    assert_equal 2, @output.string.lines.size
  end

  def test_bytes_that_are_no_text_are_survived
    log.info("bad \xFF", path: "\xFE\xFF".b)
    log(format: :json).info("bad \xFF", path: "\xFE\xFF".b)
    assert_equal 2, @output.string.lines.size
  end

  def test_an_exception_whose_message_cannot_be_read
    silent = Class.new(StandardError) { def message = raise("no") }
    begin
      raise silent
    rescue silent
      log.exception(assert_raises(RuntimeError) { raise "outer" }, "failed")
    end
    log.exception(silent.new, "failed")
    assert_match(/caused by .*cannot be read: RuntimeError/, @output.string)
    assert_match(/reason="\(the error's message cannot be read: RuntimeError\)"/, @output.string)
  end

  def test_an_exception_with_its_causes
    error = begin
      begin
        raise KeyError, "inner"
      rescue KeyError
        raise "outer"
      end
    rescue RuntimeError => e
      e
    end
    log.exception(error, "it broke", request: "GET /")
    assert_match(%r{ERROR it broke  request="GET /" error=RuntimeError reason=outer\n}, @output.string)
    assert_match(/^    caused by KeyError: inner$/, @output.string)
    assert_match(/log_test\.rb:\d+/, @output.string)
  end

  def test_a_recursion_without_end_is_cut
    deep = RuntimeError.new("deep").tap { |error| error.set_backtrace(Array.new(10_000) { |line| "x.rb:#{line}" }) }
    log.exception(deep, "too deep")
    assert_operator @output.string.lines.size, :<, 50
    assert_match(/9960 more/, @output.string)
  end

  def test_a_reader_that_has_gone_is_survived
    reader, writer = IO.pipe
    reader.close
    Chaton::Telemetry::Log.new(io: writer).info("nobody listens")
  ensure
    writer.close
  end

  def test_lines_of_many_threads_do_not_mix
    reader, writer = IO.pipe
    one = Chaton::Telemetry::Log.new(io: writer)
    Array.new(8) { |number| Thread.new { 50.times { one.info("line", number: number, pad: "x" * 100) } } }.each(&:join)
    writer.close
    lines = reader.read.lines
    assert_equal 400, lines.size
    assert(lines.all? { |line| line.match?(/INFO  line  number=\d pad=x{100}\n\z/) })
  end
end
