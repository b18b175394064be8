# frozen_string_literal: true

require_relative "../bind"
require_relative "../option"
require_relative "../types/text"

module Chaton
  module Config
    # The definitions, by chapter.
    module Options
      # What is served, and where.
      SERVER = [
        Option.in(:top, :bind, :server, Types::BindAddress.new, nil,
                  "Address to listen on; may be repeated: tcp://HOST:PORT (http:// is the same) with ?backlog=N, or " \
                  "unix://PATH with ?umask=0117&mode=0660&backlog=N. tcp://localhost is both 127.0.0.1 and [::1]. " \
                  "proxy_protocol=on: each connection begins with a header of the PROXY protocol, version 1 or 2, as " \
                  "a load balancer sends it. proxy_protocol=10.0.0.0/8,192.0.2.7 closes connections of others. " \
                  "https://HOST:PORT (ssl:// is the same) takes the files ?cert=PATH&key=PATH in PEM, which may be " \
                  "repeated, &min_version=1.3, and &verify_mode=peer or force_peer with &ca=PATH for the " \
                  "certificates of clients; in a file also bind \"https://0.0.0.0:443\", cert: \"app.pem\", key: " \
                  "\"app.key\".",
                  into: :binds, default_text: "tcp://0.0.0.0:9292", flags: %w[-b --bind], placeholder: "URI"),
        Option.in(:top, :port, :server, Types::Port.new, nil,
                  "Short for bind \"tcp://0.0.0.0:PORT\"; a file may name another host: port 3000, \"127.0.0.1\".",
                  into: :binds, default_text: "none", flags: %w[-p --port], placeholder: "PORT", env: %w[PORT]),
        Option.in(:top, :tls, :server, Types::OneOf.new(:off, :dev, words: { nil => :off, false => :off }), :off,
                  "dev: every TCP bind that names no certificate speaks HTTPS, with a certificate for localhost that " \
                  "is made on first use in $XDG_STATE_HOME/chaton/tls (~/.local/state). The log says how to trust it.",
                  flags: %w[--tls], placeholder: "dev"),
        Option.in(:top, :environment, :server, Types::Word.new("a name", pattern: /\A[\w.-]+\z/), "development",
                  "Environment of the application; RACK_ENV is set to it. RAILS_ENV, and APP_ENV of an application " \
                  "without Rails, are changed only if a flag or the file names the environment. An application with " \
                  "config/environment.rb is one of Rails, which reads RAILS_ENV first, then RACK_ENV and APP_ENV; " \
                  "any other reads APP_ENV first. In development request_timeout_s and alive_timeout_s are off.",
                  flags: %w[-e --environment], placeholder: "NAME", env: %w[APP_ENV RACK_ENV RAILS_ENV]),
        Option.in(:top, :rackup, :server, Types::Path.new, "config.ru",
                  "The application's Rack file; on the command line the argument without a flag."),
        Option.in(:cli, :config_file, :server, Types::Path.new, nil,
                  "Configuration file; - for none.",
                  default_text: "config/chaton.rb, else Puma's config/puma/ENVIRONMENT.rb or config/puma.rb",
                  flags: %w[-C --config], placeholder: "FILE", env: %w[CHATON_CONFIG]),
        Option.in(:top, :directory, :server, Types::Path.new, nil,
                  "The application's directory: relative paths start there, and the server changes into it.",
                  default_text: "where the command was typed"),
        Option.in(:top, :tag, :server, Types::Word.new, nil,
                  "Name shown in process titles and by `chaton status`. Two applications whose cron entries are " \
                  "equal need one each if they share a store.",
                  default_text: "the directory's name", flags: %w[--tag], placeholder: "NAME"),
        Option.in(:cli, :web, :server, Types::Switch.new, nil,
                  "Serve web requests; only the roles named on the command line run.",
                  default_text: "on, unless --jobs or --streams is given", flags: %w[--web]),
        Option.in(:cli, :jobs, :server, Types::Switch.new, nil,
                  "Run background jobs; without --web nothing else, so no Rack file is needed.",
                  default_text: "on with jobs { } or workers jobs: N", flags: %w[--jobs]),
        Option.in(:cli, :streams, :server, Types::Switch.new, nil,
                  "Consume streams; without --web and --jobs nothing else.",
                  default_text: "on with a consumer in streams { } or workers streams: N", flags: %w[--streams])
      ].freeze
    end
  end
end
