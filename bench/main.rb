# frozen_string_literal: true

require "optparse"
require_relative "web/run"
require_relative "web/readme"

# bin/bench: see there for its use.
options = { only: [], quick: false }
typed = ["bin/bench", *ARGV].join(" ")
parser = OptionParser.new do |opts|
  opts.banner = "bin/bench web [options] | bin/bench render FOLDER"
  opts.on("--quick", "short slices, for orientation (about 5 minutes)") { options[:quick] = true }
  opts.on("--case NAME", "only this case; may be given again") { |name| options[:only] << name }
  opts.on("--list", "name the cases") do
    [*Bench::Web::Cases.all, Bench::Web::Idle::CASE].each { |found| puts format("%-20s %s", found.name, found.title) }
    exit
  end
end
command, *rest = parser.parse(ARGV)

case command
when "web"
  $stdout.sync = true
  folder = Bench::Web::Run.new(**options, command: typed).call
  puts "", File.read(File.join(folder, "summary.md")), "", folder
when "render"
  abort parser.help unless rest.first && File.directory?(rest.first)
  folder = File.expand_path(rest.first)
  File.write(File.join(folder, "summary.md"), Bench::Web::Summary.new(folder).to_s)
  puts Bench::Web::Readme.render(folder) ? "README.md rendered" : "README.md was up to date"
else
  abort parser.help
end
