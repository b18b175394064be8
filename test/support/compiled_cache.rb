# frozen_string_literal: true

# Keeps what Ruby has compiled from the files of its libraries, of gems and of this checkout, as bootsnap does for
# applications. The tests start some 1,500 Ruby processes, and reading code is a third of the processor time that a
# server takes until it is ready. Processes that are started after {start} require this file.
module CompiledCache
  CHECKOUT = File.expand_path("../..", __dir__)
  FOLDER = File.join(CHECKOUT, "tmp", "compiled", RUBY_DESCRIPTION.tr("^A-Za-z0-9.", "_"))
  # What Ruby loads by itself where it has RubyGems; it tells nobody what that is.
  PRELUDE = %w[rubygems bundled_gems error_highlight did_you_mean syntax_suggest/core_ext].freeze
  # Files of a test, which no other one loads.
  SCRATCH = "/tmp/"

  NO_GEMS = "--disable-gems"
  OPTION = "-r#{__FILE__}".freeze

  class << self
    # Has the processes that this one starts use the cache.
    def start
      return if active? || __FILE__.match?(/\s/)

      require "fileutils"
      FileUtils.mkdir_p(FOLDER)
      ENV["RUBYOPT"] = [OPTION, ENV.fetch("RUBYOPT", nil)].compact.join(" ")
    end

    # @return [Hash{String=>String}] variables of a process whose command has no `-r`, which Ruby would carry out first:
    #   it reads RubyGems from the cache, too
    def variables = active? ? { "RUBYOPT" => "#{NO_GEMS} #{ENV.fetch("RUBYOPT")}" } : {}

    def active? = ENV["RUBYOPT"].to_s.include?(OPTION)

    # In a process that the variable has started.
    def use
      RubyVM::InstructionSequence.singleton_class.prepend(Loading)
      return if defined?(Gem)

      ENV["RUBYOPT"] = ENV.fetch("RUBYOPT").delete_prefix("#{NO_GEMS} ")
      PRELUDE.each do |library|
        require library
      rescue LoadError
        nil # This Ruby has none.
      end
    end
  end

  # Ruby asks for the compiled code of each file; nil: it compiles the file itself.
  module Loading
    def load_iseq(path)
      ours = path.start_with?(CHECKOUT)
      # A warning comes when code is compiled.
      return if ours ? $VERBOSE : path.start_with?(SCRATCH)

      written = File.mtime(path)
      kept = File.join(FOLDER, path.tr("/", "%"))
      return load_from_binary(File.binread(kept)) if File.exist?(kept) && File.mtime(kept) == written

      compile_file(path).tap { |code| keep(kept, code.to_binary, written) }
    rescue SystemCallError, RuntimeError
      nil
    end

    private

    def keep(kept, binary, written)
      fresh = "#{kept}.#{Process.pid}"
      File.binwrite(fresh, binary)
      File.utime(written, written, fresh)
      File.rename(fresh, kept)
    end
  end
end

CompiledCache.use if CompiledCache.active?
