# frozen_string_literal: true

require_relative "../config/options"
require_relative "commands"

module Chaton
  class CLI
    # Makes the text of --help from the definitions of commands and options.
    module Help
      # Columns of a terminal that are used.
      WIDTH = 100
      # Column at which sentences begin.
      INDENT = 30
      # Switch => what it does.
      SWITCHES = {
        "--json" => "Print it as JSON, for programs.",
        "--all" => "All: of a place's jobs, or of the settings.",
        "--no-open" => "Only print the link.",
        "--wait" => "Wait until the restart is over; status 1 if it was abandoned.",
        "--print" => "Print it and write nothing.",
        "--yes" => "Do not ask.",
        "--full" => "Start the whole program again in place, with the new configuration; sockets stay open.",
        "--follow" => "Wait for new records and print them too, until Ctrl-C.",
        "--tombstone" => "A record without a value, which deletes its key when the topic is compacted.",
        "--resume" => "Continue a copy that was stopped.",
        "--groups" => "Also copy the positions of the topic's consumer groups.",
        "--help" => "This text; `chaton help COMMAND` for one command.",
        "--version" => "The version."
      }.freeze
      # Switches that have a short form.
      SHORT = { "--help" => "-h, --help", "--version" => "-v, --version" }.freeze
      # Common command lines.
      EXAMPLES = <<~TEXT
        Examples
          chaton                                      serve config.ru on port 9292
          chaton -b tcp://127.0.0.1:3000 -w 2         two workers, only reachable from this machine
          chaton -e production -b unix:///run/app.sock --log json
          chaton --jobs -t 1:25                       run background jobs only
          chaton --streams                            consume streams only
          chaton check -e production                  check the configuration, and that the application loads
          chaton restart                              serve the new code without losing a request
      TEXT
      # The other sources of settings.
      FILES = <<~TEXT
        Settings come from the command line, else config/chaton.rb (or Puma's config/puma/ENVIRONMENT.rb or
        config/puma.rb), else the environment. All of them, with those that only a file can set: docs/CONFIGURATION.md.
      TEXT

      # @return [String] of `chaton --help`
      def self.overview
        ["chaton #{VERSION}: serves Ruby web applications, runs their background jobs and consumes their streams\n",
         "Usage: chaton [serve] [config.ru] [options]\n       chaton COMMAND [options]\n",
         "Commands\n#{Commands::ALL.map { |name, says| row(name, says) }.join}",
         options(Config::Options.on_command_line, %w[--help --version]), EXAMPLES, FILES].join("\n")
      end

      # @param command [Class, nil] the subcommand, where it has some
      # @return [String] of `chaton NAME --help`
      def self.of_command(name, command = nil)
        found = Commands.find(name)
        found.respond_to?(:pick) ? of_group(name, found, command) : of_single(name, found)
      end

      # Of a command with subcommands, or of one of these.
      def self.of_group(name, group, command)
        if command
          usage = command.usage
          return ["chaton #{name} #{usage.split.first}: #{group::ALL.fetch(usage.split.first).last}\n",
                  "Usage: chaton #{name} #{usage} [options]\n",
                  options(command.options, command.switches + %w[--help])].join("\n")
        end
        rows = group::ALL.map { |sub, (arguments, says)| row("#{sub} #{arguments}", says) }
        ["chaton #{name}: #{Commands::ALL.fetch(name)}\n", "Usage: chaton #{name} COMMAND [options]\n",
         "Commands\n#{rows.join}", group::NOTE].join("\n")
      end

      def self.of_single(name, command)
        file = command.options.any? { |option| option.name == :workers } ? " [config.ru]" : ""
        ["chaton #{name}: #{Commands::ALL.fetch(name)}\n", "Usage: chaton #{name}#{file} [options]\n",
         options(command.options, command.switches + %w[--help])].join("\n")
      end

      def self.options(options, switches)
        chapters = Config::Options::GROUPS.filter_map do |group, title|
          of_group = options.select { |option| option.group == group }
          "#{title}\n#{of_group.map { |option| option_row(option) }.join}" unless of_group.empty?
        end
        others = switches.map { |name| row(SHORT.fetch(name, name), SWITCHES.fetch(name)) }
        [*chapters, "Other\n#{others.join}"].join("\n")
      end

      def self.option_row(option)
        flags = option.flags.join(", ")
        flags = flags.sub("--", "--[no-]") if option.type.is_a?(Config::Types::Switch)
        flags = "    #{flags}" unless flags.match?(/\A-\w/)
        env = option.env.empty? ? "" : "; or #{option.env.join(", ")}"
        row([flags, option.placeholder].compact.join(" "), "#{option.says} [#{option.default_shown}#{env}]")
      end

      def self.row(left, text)
        lines = wrap(text)
        first = "  #{left}".ljust(INDENT)
        first = "#{first.rstrip}\n#{" " * INDENT}" if first.length > INDENT
        "#{first}#{lines.join("\n#{" " * INDENT}")}\n"
      end

      def self.wrap(text)
        text.split.each_with_object([+""]) do |word, lines|
          lines << +"" if lines.last.length + word.length + 1 > WIDTH - INDENT
          lines.last << (lines.last.empty? ? word : " #{word}")
        end
      end
      private_class_method :of_group, :of_single, :options, :option_row, :row, :wrap
    end
  end
end
