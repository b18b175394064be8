# frozen_string_literal: true

require_relative "../control_socket"
require_relative "../option"
require_relative "../types/text"

module Chaton
  module Config
    module Options
      # Log, files and the control socket.
      OUTPUT = [
        Option.new(
          name: :log_format, group: :output, type: Types::OneOf.new(:human, :json), default: :human, also: %i[log],
          flags: %w[--log], placeholder: "human|json",
          says: "Format of the server's own log, which goes to standard output."
        ),
        Option.new(
          name: :log_level, group: :output, type: Types::OneOf.new(:debug, :info, :warn, :error), default: :info,
          flags: %w[--log-level], placeholder: "LEVEL",
          says: "Lowest level that is logged: debug, info, warn or error."
        ),
        Option.new(
          name: :stdout_redirect, group: :output, type: Types::OutputFiles.new, default: nil,
          says: "Files for standard output and standard error; true as a third value appends. SIGHUP reopens them."
        ),
        Option.new(
          name: :pidfile, group: :output, type: Types::Path.new(none: true), default: nil,
          flags: %w[--pidfile], placeholder: "FILE",
          says: "File with the pid of the main process."
        ),
        Option.new(
          name: :control_socket, group: :output, type: Types::Path.new(none: true),
          default: ControlSocket.method(:default), default_text: "tmp/chaton.sock",
          flags: %w[--control-socket], placeholder: "FILE",
          says: "Unix socket through which `chaton status`, `quiet`, `stop` and `restart` reach the server; only " \
                "its owner may connect. A server without the role web has tmp/chaton-jobs.sock or " \
                "tmp/chaton-streams.sock. In releases/NAME beside a directory `shared`, as Capistrano makes them, " \
                "it is shared/tmp/chaton.sock."
        )
      ].freeze
    end
  end
end
