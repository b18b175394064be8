# frozen_string_literal: true

desc "Write docs/CONFIGURATION.md from the definitions of the options"
task :docs do
  require_relative "../lib/chaton/config/manual"
  File.write("docs/CONFIGURATION.md", Chaton::Config::Manual.text)
end
