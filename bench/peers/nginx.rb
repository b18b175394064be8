# frozen_string_literal: true

require "fileutils"
require_relative "../support/machine"
require_relative "server"

module Bench
  # The installed nginx with one worker process. It answers "/" with a word and other paths with files.
  class Nginx < Server
    # @param root [String] the directory of the files
    def initialize(root: "/var/empty", **rest)
      super(**rest)
      @root = root
    end

    def name = "nginx"

    # @raise [RuntimeError] when it is not installed
    def start(...)
      raise "nginx is not installed" unless Machine.installed?("nginx")
      @folder = Dir.mktmpdir("chaton-bench-nginx")
      super
    end

    def stop
      super
      FileUtils.rm_rf(@folder) if @folder
    end

    private

    def command(_rackup, port)
      File.write(File.join(@folder, "nginx.conf"), configuration(port)) if port.is_a?(Integer)
      ["nginx", "-e", "stderr", "-p", @folder || "FOLDER", "-c", "nginx.conf"]
    end

    # Connections are kept as long as Chaton keeps them.
    def configuration(port)
      temporary = %w[client_body proxy fastcgi uwsgi scgi].map { |name| "#{name}_temp_path #{@folder}/#{name};" }
      certificate, key = Certificate.pair if @tls
      <<~CONF
        worker_processes 1;
        daemon off;
        pid #{@folder}/pid;
        #{"user root;" if Process.uid.zero?}
        events { worker_connections 4096; }
        http {
          access_log off;
          default_type text/css;
          sendfile on;
          tcp_nopush on;
          keepalive_requests 1000000000;
          open_file_cache max=1000;
          #{temporary.join("\n  ")}
          server {
            listen 127.0.0.1:#{port}#{" ssl" if @tls};
            #{"ssl_certificate #{certificate}; ssl_certificate_key #{key};" if @tls}
            root #{@root};
            location = / { return 200 "hello"; }
          }
        }
      CONF
    end
  end
end
