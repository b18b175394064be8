# frozen_string_literal: true

require_relative "../control_socket"
require_relative "../option"
require_relative "../types/text"

module Chaton
  module Config
    module Options
      # Log, files and the control socket.
      OUTPUT = [
        Option.in(:top, :log_format, :output, Types::OneOf.new(:human, :json), :human,
                  "Format of the server's own log, which goes to standard output.",
                  also: %i[log], flags: %w[--log], placeholder: "human|json"),
        Option.in(:top, :log_level, :output, Types::OneOf.new(:debug, :info, :warn, :error), :info,
                  "Lowest level that is logged: debug, info, warn or error.",
                  flags: %w[--log-level], placeholder: "LEVEL"),
        Option.in(:top, :stdout_redirect, :output, Types::OutputFiles.new, nil,
                  "Files for standard output and standard error; true as a third value appends. SIGHUP reopens them."),
        Option.in(:top, :pidfile, :output, Types::Path.new(none: true), nil,
                  "File with the pid of the main process.", flags: %w[--pidfile], placeholder: "FILE"),
        Option.in(:top, :control_socket, :output, Types::Path.new(none: true), ControlSocket.method(:default),
                  "Unix socket through which `chaton status`, `quiet`, `stop` and `restart` reach the server; only " \
                  "its owner may connect. A server without the role web has tmp/chaton-jobs.sock or " \
                  "tmp/chaton-streams.sock. In releases/NAME beside a directory `shared`, as Capistrano makes them, " \
                  "it is shared/tmp/chaton.sock.",
                  default_text: "tmp/chaton.sock", flags: %w[--control-socket], placeholder: "FILE")
      ].freeze
    end
  end
end
