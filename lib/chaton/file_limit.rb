# frozen_string_literal: true

module Chaton
  # The limit of open files (RLIMIT_NOFILE). Service managers start programs with a soft limit of 1,024, because
  # programs that call select(2) break above it, and let those that do not raise it to the hard limit by themselves
  # (systemd.exec(5), LimitNOFILE=). Go's runtime does so, too.
  module FileLimit
    # The kernel's own bound unless it is changed (fs.nr_open). Some containers have a thousand times as many as the
    # hard limit, and programs that close every possible descriptor then take minutes.
    SOFT_MAX = 1 << 20
    # Connections of a process leave a quarter of the descriptors to the application, and not fewer than these.
    RESERVE_PART = 4
    RESERVE_MIN = 128

    module_function

    # Raises the soft limit of this process and of those that it forks.
    def raise_soft
      soft, hard = Process.getrlimit(:NOFILE)
      wanted = [hard, SOFT_MAX].min
      Process.setrlimit(:NOFILE, wanted, hard) if soft < wanted
    rescue SystemCallError
      nil # A filter of system calls forbids it.
    end

    # @param wanted [Integer] the setting
    # @return [Integer] connections that a process may have
    def connections_max(wanted)
      limit = Process.getrlimit(:NOFILE).first
      reserve = [limit / RESERVE_PART, RESERVE_MIN].max
      [wanted, [limit - reserve, limit / 2].max].min
    end

    # Warns if a process may have fewer connections than `connections_max` says.
    def check(wanted, log)
      most = connections_max(wanted)
      return if most == wanted

      files = Process.getrlimit(:NOFILE).first
      log.warn("a process has #{most} connections at most, not connections_max (#{wanted}): only #{files} files may " \
               "be open, and the application needs some of them; raise the hard limit (LimitNOFILE= of systemd, " \
               "--ulimit nofile of Docker, ulimit -Hn) or lower connections_max")
    end
  end
end
