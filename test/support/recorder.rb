# frozen_string_literal: true

# Records the actions of jobs outside of the store. Each entry is one short line in one write, so that a killed process
# leaves no partial entry. Job files require this file for {.note}, and the test reads the entries.
class Recorder
  FILE = "record.log"

  Entry = Struct.new(:id, :event, :pid, :at_s)

  class << self
    # Writes an entry. The file is in the server's working directory.
    #
    # @param id [Object] the job, without spaces
    # @param event [String] "ran", "began", "ended", …
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

  # @return [Array<Entry>] all entries so far
  def entries
    return @entries unless File.exist?(@path)

    more = File.binread(@path, nil, @offset).to_s
    whole = more[0..(more.rindex("\n") || -1)]
    return @entries unless whole.end_with?("\n")

    @offset += whole.bytesize
    @entries.concat(whole.lines.map { |line| parse(line) })
  end

  # @return [Integer] number of an event's entries
  def count(event = "ran") = entries.count { |entry| entry.event == event }

  # @return [Hash{String=>Integer}] number of an event's entries by job
  def tally(event = "ran") = entries.select { |entry| entry.event == event }.map(&:id).tally

  # @return [Array<String>] ids in the order of their entries
  def ids(event = "ran") = entries.select { |entry| entry.event == event }.map(&:id)

  # @return [Array<Entry>] of one job
  def of(id) = entries.select { |entry| entry.id == id.to_s }

  # @return [Integer] most jobs between "began" and "ended" at the same time
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
