# frozen_string_literal: true

require "json"
require "tmpdir"
require_relative "../../lib/chaton/config"

module Chaton
  module Config
    # Makes crates/default_settings.json: what the options make of each part of the engines' documents when nobody sets
    # them. Tests in Rust and Ruby begin with it, so that a new option needs no change there.
    module DefaultSettings
      # Needs a topic, so that there is a route.
      FILE = "jobs { format 7 }\nstreams { topic \"events\", \"Events\" }\n"

      # @return [String]
      def self.text
        Dir.mktmpdir do |folder|
          root = FileUtils.mkdir(File.join(folder, "app")).first
          File.write(File.join(root, "chaton.rb"), FILE)
          given = { config_file: "chaton.rb", environment: "development" }
          JSON.pretty_generate(parts(Config.load(given, env: {}, root: root))).gsub(root, "/app") << "\n"
        end
      end

      # What depends on the machine or on this version has the same value everywhere.
      def self.parts(plan)
        document = EngineDocument.new(plan, roles: Roles::ALL, slot: 0, index: 0).to_h
        document[:pool][:preempt] = true
        document[:web][:limits] = Options.document(:web, :limits, plan.web)
        document[:jobs][:version] = "0"
        groups = document[:streams].delete(:groups)
        document[:streams][:groups] = []
        group = { **groups[0][:group], instance_id: nil }
        { **document, log: plan.streams.log, group: group, route: groups[0][:routes][0],
                      live: JSON.parse(plan.live.document) }
      end
      private_class_method :parts
    end
  end
end
