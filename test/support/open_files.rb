# frozen_string_literal: true

# Room for thousands of sockets in the test and in the server that it starts,
# which inherits the limit.
module OpenFiles
  module_function

  # @param count [Integer] descriptors needed
  # @raise [RuntimeError] when this machine does not allow as many
  def allow(count)
    soft, hard = Process.getrlimit(:NOFILE)
    return if soft >= count
    raise "this test needs #{count} open files, the hard limit is #{hard}: raise it with ulimit -Hn" if hard < count
    Process.setrlimit(:NOFILE, count, hard)
  end
end
