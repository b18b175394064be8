# frozen_string_literal: true

require_relative "command"

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
    end
  end
end
