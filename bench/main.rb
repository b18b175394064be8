# frozen_string_literal: true

require "optparse"
require_relative "apps/suite"
require_relative "gc/suite"
require_relative "jobs/suite"
require_relative "live/suite"
require_relative "memory/suite"
require_relative "rails/suite"
require_relative "rails/table"
require_relative "streams/suite"
require_relative "support/page"
require_relative "support/run"
require_relative "web/suite"

# The program behind bin/bench, which describes its use.
SUITES = { "apps" => Bench::Apps::Suite, "rails" => Bench::Rails::Suite, "web" => Bench::Web::Suite,
           "jobs" => Bench::Jobs::Suite, "memory" => Bench::Memory::Suite, "gc" => Bench::Gc::Suite,
           "streams" => Bench::Streams::Suite, "live" => Bench::Live::Suite }.freeze

options = { only: [], quick: false }
# bin/matrix has its own way to call this.
typed = ENV.fetch("CHATON_BENCH_COMMAND") { ["bin/bench", *ARGV].join(" ") }
list = false
app = nil
parser = OptionParser.new do |opts|
  opts.banner = "bin/bench apps|rails|web|jobs|streams|live|memory|gc [options] | bin/bench render [FOLDER]"
  opts.on("--quick", "few short slices, for orientation (5 to 10 minutes)") { options[:quick] = true }
  opts.on("--case NAME", "only this case; may be given again") { |name| options[:only] << name }
  opts.on("--app NAME", "only the cases of this application, of the suite apps") { |name| app = name }
  opts.on("--list", "name the cases") { list = true }
end
command, *rest = parser.parse(ARGV)
$stdout.sync = true

if list
  SUITES.fetch_values(*(SUITES.key?(command) ? [command] : SUITES.keys)).flat_map(&:cases).each do |found|
    puts format("%-20s %s", found.name, found.title)
  end
elsif SUITES.key?(command)
  named = SUITES[command].cases.map(&:name).grep(/\A#{app}-/) if app
  abort "unknown application '#{app}': use #{Bench::Apps::Suite::APPS.map(&:name).join(" or ")}" if named&.empty?
  options[:only] = named if named && options[:only].empty?
  folder = Bench::Run.new(SUITES.fetch(command), **options, command: typed).call
  puts "", File.read(File.join(folder, "summary.md")), ""
  stack = Bench::Results.of_run(folder).raw("stack")
  puts Bench::Rails::Table.new(stack), "" if stack
  puts folder.delete_prefix("#{Bench::Page::ROOT}/")
elsif command == "render" && rest.empty?
  puts Bench::Page.new(SUITES).write
elsif command == "render" && File.directory?(rest.first)
  folder = File.expand_path(rest.first)
  suite = SUITES.fetch(folder[/-(#{SUITES.keys.join("|")})(?:-\d+)?\z/, 1]) { abort parser.help }
  File.write(File.join(folder, "summary.md"), suite.summary(Bench::Results.of_run(folder)).to_s)
else
  abort parser.help
end
