# frozen_string_literal: true

require "fileutils"
require_relative "../../native"
require_relative "command"

module Chaton
  class CLI
    module Profile
      # chaton profile report
      class Report < Command
        # Extension of a file => format.
        ENDINGS = { ".svg" => :svg, ".pb" => :pprof, ".gz" => :pprof, ".pprof" => :pprof, ".collapsed" => :collapsed,
                    ".folded" => :collapsed }.freeze
        # Extension for which there is no format => what to name instead.
        INSTEAD = { ".html" => "FILE.svg, a flame graph for a browser",
                    ".json" => "FILE.collapsed, which speedscope opens" }.freeze
        # Formats that are not for a terminal => name of a file.
        FOR_FILES = { pprof: "profile.pb.gz", svg: "profile.svg" }.freeze

        def self.own_options = %i[worker format by output]

        def run
          file = value(:output)
          format = value(:format) || format_of(file.to_s)
          by = value(:by)
          refuse_terminal(format) unless file
          result = ask_workers("report")
          warn_of(result)
          text = render(result.answers, format, by || :live)
          file ? write(file, text) : print_out(text)
          0
        end

        private

        # @return [String] the profiles of several workers as one text, or bytes
        def render(answers, format, by)
          title = "chaton, #{answers.map { |answer| "worker #{answer.worker} (pid #{answer.pid})" }.join(", ")}"
          Native.render_profile(answers.map(&:body), format.to_s, by.to_s, title)
        end

        def format_of(file)
          ending = File.extname(file)
          instead = INSTEAD[ending]
          raise ConfigError, "there is no format for #{ending} files; write --output #{instead}" if instead

          ENDINGS.fetch(ending, :text)
        end

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
