# frozen_string_literal: true

# The commands that need what only the application knows: `bin/rails "chaton:jobs[stats]"` is `chaton jobs stats` with
# the store that an initializer names.
namespace :chaton do
  { check: "Print Chaton's plan, and every mistake in the configuration",
    jobs: "Show and manage jobs: bin/rails \"chaton:jobs[stats]\"",
    streams: "Show and manage streams: bin/rails \"chaton:streams[topics]\"",
    status: "Print what the running server is doing" }.each do |name, text|
    desc text
    task name, [:command] => :environment do |_task, arguments|
      require "chaton/cli"
      words = [name.to_s, *arguments[:command].to_s.split, *arguments.extras]
      status = Dir.chdir(Rails.root) { Chaton::CLI.start(words) }
      exit status unless status.zero?
    end
  end
end
