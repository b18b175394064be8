# frozen_string_literal: true

require_relative "program_result"

module Chaton
  module Memory
    # Another program, started with our settings: gets our signals, and is watched to its end.
    class Program
      # Handed on. A terminal sends some of them to the program by itself.
      SIGNALS = %w[TERM INT HUP USR1 USR2 TSTP TTIN QUIT CONT WINCH].freeze
      # Those.
      OF_TERMINAL = %w[INT QUIT TSTP WINCH].freeze
      # Runs inside, where the program is a Ruby.
      HOOK = File.expand_path("run_hook.rb", __dir__)
      # How often a program is looked at that does not say itself how large it was: at first, and at most.
      LOOK_EVERY_S = (0.005..0.25)
      # The most that is read of what {HOOK} says.
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
      # @return [Outcome]
      # @raise [SystemCallError] when it cannot be started
      def run
        said, theirs = IO.pipe
        before = trap_all
        started, used = now, Process.times
        start(theirs)
        status = wait
        ProgramResult.new(status: status, wall_s: now - started, **cpu_since(used), **figures(said))
      ensure
        before&.each { |name, handler| trap(name, handler || "DEFAULT") }
        [said, theirs].compact.each(&:close)
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def start(pipe)
        name, *arguments = @command
        # As a pair, a name without arguments is not given to a shell.
        @pid = Process.spawn({ **@variables, **hook(pipe) }, [name, name], *arguments, pipe.fileno => pipe.fileno)
        pipe.close
        @early.shift.then { |signal| forward(signal) } until @early.empty?
      end

      # RUBYOPT is split at spaces, and cannot name a path with one.
      def hook(pipe)
        return {} if HOOK.match?(/\s/)

        was = @variables.keys.to_h { |name| ["CHATON_WAS_#{name}", @env[name]] }.compact
        was.merge("CHATON_RUN" => "#{pipe.fileno}:#{@variables.keys.join(",")}",
                  "RUBYOPT" => ["-r#{HOOK}", @env["RUBYOPT"]].compact.join(" "))
      end

      def trap_all
        SIGNALS.to_h { |name| [name, trap(name) { @pid ? forward(name) : @early << name }] }
      end

      def forward(name)
        Process.kill(name, @pid) unless OF_TERMINAL.include?(name) && in_foreground?
      rescue Errno::ESRCH
        nil
      end

      # Whether a terminal that sends a signal sends it to our process group, of which the program is one.
      def in_foreground?
        fields = File.read("/proc/self/stat").rpartition(")").last.split
        fields[2] == fields[5]
      rescue SystemCallError
        false
      end

      def wait
        looking = Thread.new { look }
        Process.wait2(@pid).last
      ensure
        looking&.kill&.join
      end

      def look
        pause_s = LOOK_EVERY_S.begin
        loop do
          @peak_kib = [@peak_kib, File.read("/proc/#{@pid}/status")[/VmHWM:\s+(\d+)/, 1].to_i].max
          sleep pause_s
          pause_s = [pause_s * 2, LOOK_EVERY_S.end].min
        end
      rescue SystemCallError
        nil
      end

      # Other children may have been waited for before.
      def cpu_since(before)
        after = Process.times
        { user_s: after.cutime - before.cutime, system_s: after.cstime - before.cstime }
      end

      # The program's own line, else that of the Ruby that ended last (a shell may have started several).
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
