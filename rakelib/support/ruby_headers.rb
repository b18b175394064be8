# frozen_string_literal: true

require "fileutils"
require "open3"
require "rbconfig"

# The headers of a Ruby for which the extension is compiled. That Ruby need not run on this machine: its rbconfig.rb
# says everything, and lies where it was installed, unpacked or built.
class RubyHeaders
  # The file is not what it should be.
  class Unusable < StandardError; end

  # What the build script of rb-sys reads. It gets neither flags nor libraries: they are of that Ruby's own compiler.
  KEYS = %w[MAJOR MINOR TEENY PATCHLEVEL RUBY_API_VERSION RUBY_PROGRAM_VERSION RUBY_SO_NAME ruby_install_name
            ruby_version arch platform target_cpu target_os rubyhdrdir rubyarchhdrdir].freeze
  # Evaluates the file at its own path, from which it derives all others, without its check of the version that runs it.
  READ = <<~'RUBY'
    path = ARGV.fetch(0)
    text = File.read(path).sub(/^\s*RUBY_VERSION\.start_with\?.*\n\s*raise .*$/, "")
    eval(text, TOPLEVEL_BINDING, path)
    print RbConfig::CONFIG.map { |pair| pair.join("\x1F") }.join("\x1E")
  RUBY

  # @param paths [String, nil] of rbconfig.rb files, separated by blanks; nil is the one of this Ruby
  # @return [Array<RubyHeaders>] oldest version first
  def self.all(paths)
    given = (paths || File.join(RbConfig::CONFIG["rubyarchdir"], "rbconfig.rb")).split
    given.map { |path| new(path) }.sort_by { |headers| headers.minor.split(".").map(&:to_i) }
  end

  # @return [String] such as "3.3"
  attr_reader :minor

  # @param path [String] of an rbconfig.rb
  # @raise [Unusable]
  def initialize(path)
    raise Unusable, "#{path} does not exist" unless File.file?(path)

    answer, status = Open3.capture2(RbConfig.ruby, "--disable=gems", "-e", READ, File.expand_path(path))
    raise Unusable, "#{path} cannot be read as an rbconfig.rb" unless status.success?

    @values = answer.split("\x1E").to_h { |pair| pair.split("\x1F", 2) }
    @minor = @values.values_at("MAJOR", "MINOR").join(".")
    check(path)
  end

  # @return [String] such as "x86_64"
  def cpu = @values["target_cpu"]

  # Writes a program that answers the build script of rb-sys, which asks the Ruby that it compiles for.
  #
  # @param folder [String]
  # @return [String] path of the program
  def write_program(folder)
    FileUtils.mkdir_p(folder)
    path = File.join(folder, "ruby-#{@minor}")
    File.write("#{path}.config", @values.slice(*KEYS).map { |pair| pair.join("\x1F") }.join("\x1E"))
    File.write(path, "#!/bin/sh\nexec cat \"$0.config\"\n")
    File.chmod(0o755, path)
    path
  end

  private

  def check(path)
    missing = [File.join(@values["rubyhdrdir"], "ruby.h"), File.join(@values["rubyarchhdrdir"], "ruby/config.h")]
      .reject { |file| File.file?(file) }
    raise Unusable, "#{path} belongs to headers that are not there: #{missing.join(", ")}" if missing.any?
  end
end
