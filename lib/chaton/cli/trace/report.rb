# frozen_string_literal: true

require "fileutils"
require_relative "command"
require_relative "rendering"

module Chaton
  class CLI
    module Trace
      # chaton trace report
      class Report < Command
        include Rendering

        # Extension of a file => format.
        ENDINGS = { ".html" => :html, ".htm" => :html, ".pb" => :pprof, ".gz" => :pprof, ".pprof" => :pprof,
                    ".json" => :speedscope, ".collapsed" => :collapsed, ".folded" => :collapsed }.freeze
        # Formats that are not for a terminal => name of a file.
        FOR_FILES = { pprof: "trace.pb.gz", speedscope: "trace.speedscope.json", html: "trace.html" }.freeze

        def self.own_options = %i[worker format by output]

        def run
          file = value(:output)
          format = value(:format) || ENDINGS.fetch(File.extname(file.to_s), :text)
          by = value(:by)
          refuse_terminal(format) unless file
          result = ask_workers("report")
          warn_of(result)
          text = render(result.answers, format, by)
          file ? write(file, text) : print_out(text)
          0
        end

        private

        def refuse_terminal(format)
          return unless FOR_FILES.key?(format) && @out.respond_to?(:tty?) && @out.tty?

          raise ConfigError, "#{format} is not for a terminal; name a file: --output #{FOR_FILES.fetch(format)}"
        end

        def print_out(text)
          @out.binmode if @out.respond_to?(:binmode)
          @out.write(text)
        end

        # Renaming makes it appear whole: a viewer may have the old file open.
        def write(file, text)
          file = File.expand_path(file)
          File.binwrite("#{file}.#{Process.pid}", text)
          File.rename("#{file}.#{Process.pid}", file)
          @out.puts "#{file}: #{Config::Types.thousands(text.bytesize)} bytes"
        rescue SystemCallError => e
          FileUtils.rm_f("#{file}.#{Process.pid}")
          raise Chaton::Error, "#{file} cannot be written: #{e.message.sub(/ @ .*/, "")}"
        end
      end
    end
  end
end
