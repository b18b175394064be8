# frozen_string_literal: true

require "fileutils"

# Records the actions of consumers outside of the log, in an append-only file for each partition. Each entry is one
# short line in one write, so that a killed process leaves no partial entry. Consumer files require this file for
# {.note} and {.did}, and the test reads the entries.
class Evidence
  # Names the directory of the files, which all servers of a test share.
  VARIABLE = "EVIDENCE_DIR"

  Entry = Struct.new(:event, :topic, :number, :offset, :key, :value, :pid, :at_s) do
    # @return [Array] topic and partition
    def place = [topic, number]
    # @return [Integer] the partition; a Struct member may not have this name
    def partition = number
  end

  class << self
    # Notes a consumed record.
    #
    # @param record [Chaton::Native::Record] key and value without spaces
    # @param event [String] "did", "in", "out", …
    def did(record, event = "did")
      note(event, record.topic, record.partition, record.offset, record.key || "-", record.raw || "-")
    end

    # @param words [Array] offset, key and value, all optional
    def note(event, topic, partition, *words)
      offset, key, value = words
      file(topic, partition)
        .syswrite("#{event} #{offset || -1} #{key || "-"} #{value || "-"} #{Process.pid} #{now_s}\n")
    end

    def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    private

    def file(topic, partition)
      @files ||= {}
      @files[[topic, partition]] ||=
        File.open(File.join(ENV.fetch(VARIABLE), "#{topic}@#{partition}"), File::WRONLY | File::APPEND | File::CREAT)
    end
  end

  # @param dir [String]
  def initialize(dir)
    @dir = dir
    @entries = Hash.new { |all, path| all[path] = [] }
    @read = Hash.new(0)
    FileUtils.mkdir_p(dir)
  end

  # @return [Array<Entry>] all entries so far, those of a partition in order
  def entries
    Dir.glob(File.join(@dir, "*")).flat_map { |path| entries_of(path) }
  end

  # @return [Array<Entry>] of an event, and of a topic when one is given
  def all(event = "did", topic: nil)
    entries.select { |entry| entry.event == event && (topic.nil? || entry.topic == topic) }
  end

  def values(event = "did", topic: nil) = all(event, topic: topic).map(&:value)

  def count(event = "did", topic: nil) = all(event, topic: topic).size

  # @return [Hash{Array=>Array<Integer>}] consumed offsets by topic and partition
  def offsets = all.group_by(&:place).transform_values { |found| found.map(&:offset) }

  # Finds records that were first consumed after a newer one of their key. Values are rising numbers.
  #
  # @return [Array<Entry>]
  def out_of_order
    all.group_by { |entry| [*entry.place, entry.key] }.flat_map do |_, entries|
      newest = -1
      seen = {}
      entries.select do |entry|
        number = entry.value.to_i
        older = number < newest && !seen[number]
        seen[number] = true
        newest = [newest, number].max
        older
      end
    end
  end

  # Finds partitions that two processes had at the same time, between "began" and "ended". A killed process has no
  # "ended"; its last entry counts instead.
  #
  # @return [Array<(Array, Integer, Integer)>] partition and the two pids
  def shared
    spans.group_by(&:first).flat_map do |place, found|
      found.sort_by { |_, _, from, _| from }.each_cons(2)
        .select { |one, other| one[1] != other[1] && other[2] < one[3] }
        .map { |one, other| [place, one[1], other[1]] }
    end
  end

  # @yield [Entry] returns the key of the entry's group
  # @return [Integer] most records of a group that were between "in" and "out" at the same time
  def together_max(&group)
    found = entries.select { |entry| %w[in out].include?(entry.event) }
    found.group_by(&group).values.map { |entries| most(entries) }.max || 0
  end

  private

  def entries_of(path)
    known = @entries[path]
    more = File.binread(path, nil, @read[path]).to_s
    whole = more[0...((more.rindex("\n") || -1) + 1)]
    return known if whole.empty?

    @read[path] += whole.bytesize
    topic, partition = File.basename(path).split("@")
    known.concat(whole.lines.map { |line| parse(line, topic, partition.to_i) })
  end

  def parse(line, topic, partition)
    event, offset, key, value, pid, at_s = line.split
    Entry.new(event, topic, partition, offset.to_i, key, value, pid.to_i, at_s.to_f)
  end

  def most(entries)
    running = 0
    entries.sort_by(&:at_s).map { |entry| running += entry.event == "in" ? 1 : -1 }.max
  end

  # @return [Array<(Array, Integer, Float, Float)>] partition, pid, from, to
  def spans
    entries.group_by { |entry| [entry.place, entry.pid] }.flat_map do |(place, pid), found|
      began = nil
      spans = found.filter_map do |entry|
        began = entry.at_s if entry.event == "began"
        [place, pid, began, entry.at_s] if entry.event == "ended"
      end
      last = found.reverse_each.find { |entry| %w[began ended].include?(entry.event) }
      spans << [place, pid, began, found.last.at_s] if last&.event == "began"
      spans
    end
  end
end
