# frozen_string_literal: true

require_relative "../progress"
require_relative "command"
require_relative "partition_copy"
require_relative "group_transfer"

module Chaton
  class CLI
    module Streams
      # chaton streams copy TOPIC --to URL: copies the records that the topic has at the start, partition by partition.
      class Copy < Command
        # Time for records in flight to arrive after an interrupt.
        FLUSH_S = 5.0

        def self.own_options = %i[to from as]

        def self.switches = [*super, "--resume", "--groups"]

        # @return [Integer] exit status; 130 when it was interrupted
        # @raise [Chaton::Error]
        def run
          @arguments.problem("--to is missing: chaton streams copy TOPIC --to URL") unless value(:to)
          @topic, = positional("TOPIC")
          @as = value(:as) || @topic
          open_both
          partitions = @source_admin.topic!(@topic)["partitions"]
          copies = prepare(partitions)
          copy(copies)
          groups = @arguments.switch?("--groups") ? transfer(copies) : []
          report(copies, groups)
        rescue Interrupt
          raise unless copies

          @target.flush(FLUSH_S)
          @err.puts "chaton: #{where(copies)}"
          130
        end

        private

        def open_both
          @source = value(:from) ? open_log(value(:from)) : client
          @target = open_log(value(:to), make: true)
          if @source.address == @target.address && @topic == @as
            raise ConfigError, "#{@topic} cannot be copied onto itself; name another topic (--as) or broker (--to)"
          end

          @source_admin, @target_admin = Admin.new(@source), Admin.new(@target)
          @notes = CopyProgress.new(@source_admin, @topic, target: @target.address, as: @as)
        end

        def prepare(partitions)
          there = target_partitions(partitions.size)
          begin_anew(partitions, there) unless @arguments.switch?("--resume")
          notes = @notes.read
          partitions.zip(there).map do |from, to|
            note = notes[from["number"]] or raise Chaton::Error, never_begun
            PartitionCopy.new(job, from: from, to: to, note: note)
          end
        end

        def job
          @job ||= PartitionCopy::Job.new(source: @source, target: @target, topic: @topic, as: @as, notes: @notes,
                                          timeouts: timeouts)
        end

        def target_partitions(count)
          topic = @target_admin.topic(@as)
          return topic["partitions"] if topic && topic["partitions"].size == count
          raise Chaton::Error, other_number(topic["partitions"].size, count) if topic
          raise Chaton::Error, never_begun if @arguments.switch?("--resume")

          @target_admin.create(@as, partitions: count)
          @target_admin.topic!(@as)["partitions"]
        end

        def begin_anew(partitions, there)
          unless there.all? { |partition| partition["start"] == partition["end"] }
            raise Chaton::Error, "#{@as} at #{@target.address} has records already; --resume continues a copy " \
                                 "that was stopped, --as copies under another name"
          end

          @notes.write(partitions.zip(there).to_h do |from, to|
            [from["number"], CopyProgress::Position.new(from["start"], to["end"])]
          end)
        end

        def copy(copies)
          Progress.on(@err, "copy", copies.sum(&:left)) do |progress|
            done = 0
            copies.each { |one| one.run { |count| progress.at(done += count) } }
          end
        rescue StreamError => e
          raise e.class, "#{e.message}; #{where(copies)}"
        end

        def transfer(copies)
          transfer = GroupTransfer.new(@source, @source_admin, @target_admin, topic: @topic, as: @as)
          transfer.run(copies.to_h { |one| [one.number, one] })
        end

        def where(copies)
          at = copies.reject(&:done?).map { |one| "#{@topic}/#{one.number} @#{one.position}" }
          "the copy has come to #{at.first(3).join(", ")}#{" and so on" if at.size > 3}; --resume continues it"
        end

        def report(copies, groups)
          records = copies.sum(&:count)
          data = { topic: @topic, from: @source.address, to: @target.address, as: @as, records: records,
                   partitions: copies.map { |one| { partition: one.number, records: one.count, through: one.end } },
                   groups: groups }
          lines = ["#{Config::Types.thousands(records)} records of #{@topic} were copied to #{@as} at " \
                   "#{@target.address}",
                   *groups.map { |group| "group #{group[:group]} continues at #{places(group[:offsets])}" }]
          answer(data, lines.join("\n"))
        end

        def places(offsets) = offsets.map { |partition, offset| "#{partition} @#{offset}" }.join(", ")

        def other_number(has, wanted)
          "#{@as} at #{@target.address} has #{has} partitions and #{@topic} #{wanted}: keys would move; copy " \
            "under another name (--as)"
        end

        def never_begun
          "no copy of #{@topic} to #{@as} at #{@target.address} was begun, so none can be resumed; leave --resume out"
        end
      end
    end
  end
end
