# frozen_string_literal: true

require_relative "command"
require_relative "cursor"

module Chaton
  class CLI
    module Streams
      # chaton streams groups [GROUP]
      class Groups < Command
        def run
          name, = positional(more: 1)
          groups = name ? [found(name)] : admin.groups
          answer(name ? groups.first : groups, text(groups))
        end

        private

        def found(name)
          groups = admin.groups
          groups.find { |group| group["name"] == name } || begin
            nearest = Config::Nearest.to(name, groups.map { |group| group["name"] })
            raise Chaton::Error, "#{client.address} has no group #{name.inspect}" \
                                 "#{nearest ? "; did you mean #{nearest}?" : " (`chaton streams groups` lists them)"}"
          end
        end

        def text(groups)
          return "#{client.address} has no consumer group" if groups.empty?

          rows = groups.flat_map do |group|
            next [[group["name"], group["state"], nil, nil, nil]] if group["members"].empty?

            group["members"].map do |member|
              [group["name"], group["state"], member["id"], member["host"], member["partitions"].join(" ")]
            end
          end
          Table.text(%w[group state member host partitions], rows)
        end
      end

      # chaton streams lag [TOPIC]
      class Lag < Command
        def self.own_options = %i[group]

        def run
          name, = positional(more: 1)
          topics = name ? [admin.topic!(name)] : admin.topics
          found = GroupLag.new(topics, committed, plan.streams).rows
          answer({ partitions: found.map(&:to_h), groups: totals(found) }, text(found))
        end

        private

        # @return [Hash{String=>Array<Hash>}] commits by group
        def committed
          only = value(:group)
          names = [*admin.groups.map { |group| group["name"] }, *declared].uniq.sort
          known = only.nil? || names.include?(only)
          raise Chaton::Error, unknown(only, names) unless known

          (only ? [only] : names).to_h { |group| [group, admin.committed(group)] }
        end

        def declared = plan.streams.routes.map(&:group)

        def unknown(name, names)
          nearest = Config::Nearest.to(name, names)
          "#{client.address} has no group #{name.inspect}#{"; did you mean #{nearest}?" if nearest}"
        end

        def nothing
          return "no group has committed anything, and none is configured" if declared.empty?

          "#{declared.uniq.join(", ")}: none of their topics exists yet; `chaton streams apply` creates them"
        end

        def totals(rows)
          rows.group_by(&:group).map { |group, of_group| { group: group, lag: of_group.sum(&:lag) } }
        end

        def text(rows)
          return nothing if rows.empty?

          lines = rows.map { |row| [row.group, row.topic, row.partition.to_s, row.committed, row.end, row.lag] }
          sums = totals(rows).map { |sum| [sum[:group], sum[:lag]] }
          [Table.text(%w[group topic partition committed end lag], lines), "", *stopped(rows),
           Table.text(%w[group lag], [*sums, ["all", sums.sum(&:last)]])].join("\n")
        end

        def stopped(rows)
          lines = rows.select(&:stopped).map do |row|
            "group #{row.group} has stopped in #{row.topic}/#{row.partition}: records #{row.stopped.join(" to ")} " \
              "are gone (on_gap: :stop); stop its workers and set its offset: chaton streams seek #{row.group} " \
              "#{row.topic} --to #{row.stopped.last + 1} --partition #{row.partition}"
          end
          lines.empty? ? [] : [*lines, ""]
        end
      end

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
