# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs backup FILE: copies a store that is in use.
      class Backup < Command
        def run
          file = File.expand_path(positional("FILE").first)
          raise Chaton::Error, "#{file} exists; remove it or name another file" if File.exist?(file)

          Progress.on(@err, "backup", 0) do |progress|
            client.backup(file) { |done, pages| progress.at(done, pages) }
          end
          bytes = File.size(file)
          answer({ file: file, bytes: bytes }, "#{file}: #{Config::Types.thousands(bytes)} bytes")
        end
      end
    end
  end
end
