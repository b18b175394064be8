# frozen_string_literal: true

require_relative "command"
require_relative "group_lag"

module Chaton
  class CLI
    module Streams
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
    end
  end
end
