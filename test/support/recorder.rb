# frozen_string_literal: true

# How jobs say what they did, without a store: each entry is one short line, appended by one write, so it is there
# whole or not at all, whatever kills the process next. Job files require this file for {.note}; the test reads.
class Recorder
  FILE = "record.log"

  Entry = Struct.new(:id, :event, :pid, :at_s)

  class << self
    # Writes an entry; the working directory is that of the server.
    #
    # @param id [Object] which job, without spaces
    # @param event [String] "ran", "began", "ended", …
    # @return [void]
    def note(id, event = "ran")
      @file ||= File.open(FILE, File::WRONLY | File::APPEND | File::CREAT)
      @file.syswrite("#{id} #{event} #{Process.pid} #{now_s}\n")
    end

    def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  # @param dir [String] the server's directory
  def initialize(dir)
    @path = File.join(dir, FILE)
    @entries = []
    @offset = 0
  end

  # @return [Array<Entry>] all that was written so far
  def entries
    return @entries unless File.exist?(@path)

    more = File.binread(@path, nil, @offset).to_s
    whole = more[0..(more.rindex("\n") || -1)]
    return @entries unless whole.end_with?("\n")

    @offset += whole.bytesize
    @entries.concat(whole.lines.map { |line| parse(line) })
  end

  # @return [Integer] entries of an event
  def count(event = "ran") = entries.count { |entry| entry.event == event }

  # @return [Hash{String=>Integer}] how often each job did something
  def tally(event = "ran") = entries.select { |entry| entry.event == event }.map(&:id).tally

  # @return [Array<String>] ids in the order of their entries
  def ids(event = "ran") = entries.select { |entry| entry.event == event }.map(&:id)

  # @return [Array<Entry>] of one job
  def of(id) = entries.select { |entry| entry.id == id.to_s }

  # @return [Integer] most jobs between "began" and "ended" at one moment
  def together_max
    running = 0
    entries.sort_by(&:at_s).map { |entry| running += { "began" => 1, "ended" => -1 }.fetch(entry.event, 0) }.max || 0
  end

  private

  def parse(line)
    id, event, pid, at_s = line.split
    Entry.new(id, event, pid.to_i, at_s.to_f)
  end
end
