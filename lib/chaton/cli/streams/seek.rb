# frozen_string_literal: true

require_relative "command"
require_relative "cursor"

module Chaton
  class CLI
    module Streams
      # chaton streams seek GROUP TOPIC: sets the offsets at which a group without members continues.
      class Seek < Command
        def self.own_options = %i[seek_to partition]

        def run
          group, name = positional("GROUP", "TOPIC")
          to = value(:seek_to) || raise(ConfigError, "--to is missing: earliest, latest, an offset or a time")
          check(group)
          offsets = partitions(admin.topic!(name)).to_h { |one| [one["number"], offset(name, one, to)] }
          admin.set_committed(group, offsets.map do |number, offset|
            { topic: name, partition: number, offset: offset, metadata: "" }
          end)
          lines = offsets.map { |number, offset| "#{group} continues in #{name}/#{number} at #{offset}" }
          answer({ group: group, topic: name, offsets: offsets }, lines.join("\n"))
        end

        private

        # A misspelt name would become a new group.
        def check(name)
          names = [*admin.groups.map { |group| group["name"] }, *plan.streams.routes.map(&:group)].uniq
          return if names.include?(name)

          nearest = Config::Nearest.to(name, names)
          raise Chaton::Error, "#{client.address} has no group #{name.inspect}" \
                               "#{"; did you mean #{nearest}?" if nearest}"
        end

        def offset(topic, partition, to)
          first, last = partition.values_at("start", "end")
          case to
          when "earliest" then first
          when "latest" then last
          when Integer then (to.negative? ? last + to : to).clamp(first, last)
          else Cursor.new(client, topic, partition, to).peek&.offset || last
          end
        end
      end
    end
  end
end
