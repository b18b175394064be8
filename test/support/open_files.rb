# frozen_string_literal: true

# Raises the limit of open files for thousands of sockets. A server that the test starts inherits the limit.
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

  # Has every call that needs a new descriptor fail with EMFILE.
  def none
    limits = Process.getrlimit(:NOFILE)
    Process.setrlimit(:NOFILE, 0, limits.last)
    yield
  ensure
    Process.setrlimit(:NOFILE, *limits)
  end
end
