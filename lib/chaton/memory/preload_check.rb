# frozen_string_literal: true

require "rbconfig"

module Chaton
  module Memory
    # Checks that a library can be preloaded by starting a Ruby with it. The library's header is not enough: it may need
    # a newer C library, and then the dynamic linker ends the process.
    module PreloadCheck
      # The user's settings are left out.
      WITHOUT = { "RUBYOPT" => nil, "RUBYLIB" => nil }.freeze
      # The linker's messages, when it ignores the library, contain this.
      IGNORED = "ld.so"
      # Bound of the output that is read.
      OUTPUT_BYTES_MAX = 65_536

      # @param variables [Hash{String=>String}] variables of the process
      # @return [String, nil] an error text, nil if it works
      def self.failure(variables, ruby: RbConfig.ruby)
        output, input = IO.pipe
        streams = { in: File::NULL, out: File::NULL, err: input }
        pid = Process.spawn({ **WITHOUT, **variables }, ruby, "--version", close_others: true, **streams)
        input.close
        text = output.read(OUTPUT_BYTES_MAX).to_s.scrub
        status = Process.wait2(pid).last
        return if status.success? && !text.include?(IGNORED)

        text.lines.first&.chomp || "a Ruby with it ended with #{status.termsig ? "signal #{status.termsig}" : status}"
      rescue SystemCallError => e
        "it could not be tried: #{e.message}"
      ensure
        [output, input].compact.each(&:close)
      end
    end
  end
end
