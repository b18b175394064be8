# frozen_string_literal: true

require "fileutils"

module Bench
  module Jobs
    # A proxy with a delay between a job server and its Redis: delay.rs, built once.
    class Delay
      SOURCE = File.expand_path("delay.rs", __dir__)
      PROGRAM = File.expand_path("../../tmp/bench/delay", __dir__)

      attr_reader :port

      # @param target_port [Integer]
      # @param milliseconds [Numeric] each way
      def initialize(target_port, milliseconds)
        @target_port = target_port
        @microseconds = (milliseconds * 1000).to_i
      end

      # @return [self]
      def start
        build unless FileUtils.uptodate?(PROGRAM, [SOURCE])
        reader, writer = IO.pipe
        @pid = Process.spawn(PROGRAM, @target_port.to_s, @microseconds.to_s, out: writer, err: File::NULL, pgroup: true)
        writer.close
        @port = Integer(reader.gets.to_s.chomp, exception: false) or raise "#{PROGRAM} did not start"
        self
      end

      def stop
        return unless @pid
        Process.kill(:TERM, @pid)
        Process.wait(@pid)
        @pid = nil
      end

      private

      def build
        FileUtils.mkdir_p(File.dirname(PROGRAM))
        system("rustc", "--edition", "2021", "-O", "-o", PROGRAM, SOURCE, exception: true)
      end
    end
  end
end
