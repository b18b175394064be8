# frozen_string_literal: true

require_relative "core"
require_relative "boot_signals"
require_relative "cli/arguments"
require_relative "cli/commands"
require_relative "cli/help"
require_relative "config"
require_relative "native_library"

module Chaton
  # The command line: finds the command, runs it, turns errors into sentences and an exit status.
  class CLI
    # The argument that asks for backtraces.
    DEBUG = /\A--log-level(=|\s)debug\z/

    # What may be meant as a command.
    WORD = /\A[a-z]+\z/

    # @return [Integer] exit status: 0 done, 1 an error that was printed, 130 interrupted
    def self.start(argv, out: $stdout, err: $stderr) = new(argv, out: out, err: err).run

    def initialize(argv, out:, err:)
      @argv = argv.map(&:dup).freeze
      @out = out
      @err = err
    end

    # @return [Integer] exit status
    def run
      return version if %w[-v --version].include?(@argv.first)

      name, rest = command
      return help(rest.first) if name == "help"

      dispatch(name, rest)
    rescue AppLoadError => e
      require_relative "workload/load_failure"
      failed(e, [e.message.chomp, *Workload::LoadFailure.place(e)].join("\n  at "))
    rescue Chaton::Error => e
      failed(e)
    rescue Interrupt
      130
    rescue Errno::EPIPE
      # Whoever read our output has seen enough.
      1
    rescue StandardError, ScriptError => e
      failed(e, "#{e.class}: #{e.message.lines.first&.chomp} (unexpected; --log-level debug shows where)")
    end

    private

    # The first argument names a command; a file or an option is an argument of `serve`.
    def command
      first = Commands::OLD_NAMES.fetch(@argv.first, @argv.first)
      return [first, @argv.drop(1)] if Commands::ALL.key?(first) || first == "help"
      raise no_command(first) if first&.match?(WORD) && !File.exist?(first)

      ["serve", @argv]
    end

    def no_command(name)
      nearest = Config::Nearest.to(name, Commands::ALL.keys)
      hint = nearest ? "did you mean #{nearest}?" : "`chaton help` lists the commands"
      ConfigError.new("there is no command #{name}; #{hint}")
    end

    def dispatch(name, rest)
      command = Commands.find(name)
      command, rest = command.pick(rest) if command.respond_to?(:pick)
      return help(name) unless command

      run_command(command, name, rest)
    end

    def run_command(command, name, rest)
      arguments = Arguments.new(rest, options: command.options, switches: command.switches)
      return help(rest == @argv ? nil : name, command) if arguments.switch?("--help")
      return version if arguments.switch?("--version")

      BootSignals.release unless name == "serve"
      command.new(arguments, argv: @argv, out: @out, err: @err).run
    end

    def version
      @out.puts "chaton #{VERSION} (ruby #{RUBY_VERSION}, #{RUBY_PLATFORM})"
      0
    end

    def help(topic, command = nil)
      raise no_command(topic) if topic && !Commands::ALL.key?(topic)

      @out.puts topic ? Help.of_command(topic, command) : Help.overview
      0
    end

    def failed(error, message = error.message)
      @err.puts "chaton: #{message}"
      @err.puts error.full_message(highlight: false) if debug?
      1
    end

    def debug? = @argv.each_cons(2).any? { |pair| DEBUG.match?(pair.join(" ")) } || @argv.any?(DEBUG)
  end
end
