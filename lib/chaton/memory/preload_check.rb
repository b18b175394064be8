# frozen_string_literal: true

require "rbconfig"

module Chaton
  module Memory
    # Starts a Ruby that does nothing with a library loaded first. What stands in the library's head does not tell
    # whether it can be loaded: it may need a newer C library, and then the dynamic linker ends the process.
    module PreloadCheck
      # What a user may have put there is not what is tried.
      WITHOUT = { "RUBYOPT" => nil, "RUBYLIB" => nil }.freeze
      # What the linker writes when it goes on without the library.
      IGNORED = "ld.so"
      # A program that writes more has gone wrong in another way.
      OUTPUT_BYTES_MAX = 65_536

      # @param variables [Hash{String=>String}] those the process would be executed with
      # @param ruby [String]
      # @return [String, nil] what went wrong, nil when it works
      def self.failure(variables, ruby: RbConfig.ruby)
        said, input = IO.pipe
        streams = { in: File::NULL, out: File::NULL, err: input }
        pid = Process.spawn({ **WITHOUT, **variables }, ruby, "--version", close_others: true, **streams)
        input.close
        text = said.read(OUTPUT_BYTES_MAX).to_s.scrub
        status = Process.wait2(pid).last
        return if status.success? && !text.include?(IGNORED)

        text.lines.first&.chomp || "a Ruby with it ended with #{status.termsig ? "signal #{status.termsig}" : status}"
      rescue SystemCallError => e
        "it could not be tried: #{e.message}"
      ensure
        [said, input].compact.each(&:close)
      end
    end
  end
end
