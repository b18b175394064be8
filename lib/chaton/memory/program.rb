# frozen_string_literal: true

require_relative "program_result"

module Chaton
  module Memory
    # A program run by `chaton run` with our allocator and heap sizes: forwards signals to it and measures its memory.
    class Program
      # Signals that are forwarded.
      SIGNALS = %w[TERM INT HUP USR1 USR2 TSTP TTIN QUIT CONT WINCH].freeze
      # Signals that a terminal sends to the program by itself.
      OF_TERMINAL = %w[INT QUIT TSTP WINCH].freeze
      # A file loaded into the program if it is a Ruby; it reports the collector's figures.
      PRELOAD = File.expand_path("program_preload.rb", __dir__)
      # Interval between two readings of the program's peak memory: at first, and at most.
      SAMPLE_EVERY_S = (0.005..0.25)
      # Bound of the figures that are read from {PRELOAD}.
      FIGURES_BYTES_MAX = 65_536

      # @param command [Array<String>]
      # @param variables [Hash{String=>String}]
      # @param env [ENV, Hash{String=>String}]
      def initialize(command, variables, env: ENV)
        @command = command
        @variables = variables
        @env = env
        @early = []
        @peak_kib = 0
      end

      # Starts it and waits for its end.
      #
      # @return [ProgramResult]
      # @raise [SystemCallError] when it cannot be started
      def run
        output, input = IO.pipe
        before = trap_all
        started, used = now, Process.times
        start(input)
        status = wait
        ProgramResult.new(status: status, wall_s: now - started, **cpu_since(used), **figures(output))
      ensure
        before&.each { |name, handler| trap(name, handler || "DEFAULT") }
        [output, input].compact.each(&:close)
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def start(pipe)
        name, *arguments = @command
        # As a pair, a name without arguments is not passed to a shell.
        @pid = Process.spawn({ **@variables, **preload(pipe) }, [name, name], *arguments, pipe.fileno => pipe.fileno)
        pipe.close
        @early.shift.then { |signal| forward(signal) } until @early.empty?
      end

      # RUBYOPT is split at spaces, so it cannot name a path with one.
      def preload(pipe)
        return {} if PRELOAD.match?(/\s/)

        was = @variables.keys.to_h { |name| ["CHATON_WAS_#{name}", @env[name]] }.compact
        was.merge("CHATON_RUN" => "#{pipe.fileno}:#{@variables.keys.join(",")}",
                  "RUBYOPT" => ["-r#{PRELOAD}", @env["RUBYOPT"]].compact.join(" "))
      end

      def trap_all
        SIGNALS.to_h { |name| [name, trap(name) { @pid ? forward(name) : @early << name }] }
      end

      def forward(name)
        Process.kill(name, @pid) unless OF_TERMINAL.include?(name) && in_foreground?
      rescue Errno::ESRCH
        nil
      end

      # Whether the terminal sends signals to our process group, which includes the program.
      def in_foreground?
        fields = File.read("/proc/self/stat").rpartition(")").last.split
        fields[2] == fields[5]
      rescue SystemCallError
        false
      end

      def wait
        sampler = Thread.new { sample_peak }
        Process.wait2(@pid).last
      ensure
        sampler&.kill&.join
      end

      def sample_peak
        pause_s = SAMPLE_EVERY_S.begin
        loop do
          @peak_kib = [@peak_kib, File.read("/proc/#{@pid}/status")[/VmHWM:\s+(\d+)/, 1].to_i].max
          sleep pause_s
          pause_s = [pause_s * 2, SAMPLE_EVERY_S.end].min
        end
      rescue SystemCallError
        nil
      end

      # The difference, because other children may have ended before.
      def cpu_since(before)
        after = Process.times
        { user_s: after.cutime - before.cutime, system_s: after.cstime - before.cstime }
      end

      # The figures of the program itself, else of the Ruby that ended last (a shell may start several).
      def figures(pipe)
        text = pipe.read_nonblock(FIGURES_BYTES_MAX, exception: false)
        lines = text.is_a?(String) ? text.lines.filter_map { |line| ProgramResult.figures(line) } : []
        ruby = lines.find { |line| line[:pid] == @pid } || lines.last
        peak = [ruby ? ruby[:peak_kib] : 0, @peak_kib].max
        { ruby: ruby, peak_bytes: (peak << 10 if peak.positive?) }
      end
    end
  end
end
