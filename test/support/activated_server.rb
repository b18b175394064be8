# frozen_string_literal: true

require_relative "server"

# Started as systemd does it: the socket is descriptor 3. LISTEN_PID has to name the process itself: a shell sets it
# before its exec.
class ActivatedServer < Server
  SHELL = 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"'

  def initialize(socket, **options)
    super(**options, inherit: { 3 => socket })
  end

  def command = ["sh", "-c", SHELL, "sh", *super]
end
