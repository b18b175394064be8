# frozen_string_literal: true

require "fileutils"
require "rbconfig"
require "shellwords"

# Finds the tools that building the native extension needs, and explains how to install missing ones. Used by extconf.rb
# (an installed gem) and rakelib/compile.rake (a checkout).
module Toolchain
  # Something has to be installed first; the message names it.
  class Missing < StandardError; end

  ROOT = File.expand_path("../..", __dir__)
  # Packages install libclang here; bindgen loads it to read ruby.h. The newest version is used.
  LIBCLANG_GLOBS = [
    "/usr/lib/llvm-*/lib/libclang*.so*",
    "/usr/lib{64,/x86_64-linux-gnu,/aarch64-linux-gnu}/libclang*.so*",
    "/usr/local/{lib,opt/llvm/lib}/libclang*.{so,dylib}*",
    "/opt/homebrew/opt/llvm/lib/libclang.dylib"
  ].freeze

  module_function

  # @return [String] the cargo to run
  def cargo = ENV.fetch("CARGO", "cargo")

  # @return [String] the folder of cargo's output
  def target = ENV.fetch("CARGO_TARGET_DIR", File.join(ROOT, "target"))

  # Replaces a file by renaming: a running server keeps the one that it has mapped, and no process ever reads half of
  # the new one.
  #
  # @yieldparam fresh [String] path of the new file, which the block writes
  def replace(path)
    fresh = "#{path}.#{Process.pid}"
    FileUtils.mkdir_p(File.dirname(path))
    yield fresh
    File.rename(fresh, path)
  ensure
    FileUtils.rm_f(fresh)
  end

  # @return [Gem::Version] the oldest Rust the workspace compiles with
  def rust_needed
    Gem::Version.new(File.read(File.join(ROOT, "Cargo.toml"))[/^rust-version\s*=\s*"([\d.]+)"/, 1])
  end

  # @return [Gem::Version, nil] the Rust that is installed, nil when there is none
  def rust_installed
    version = IO.popen([cargo, "--version"], err: File::NULL, chdir: ROOT, &:read)[/\d+(\.\d+)+/]
    version && Gem::Version.new(version)
  rescue Errno::ENOENT
    nil
  end

  # @return [Boolean] whether an installed cargo can build the workspace
  def cargo_ready? = !rust_installed.nil? && rust_installed >= rust_needed

  # @return [String, nil] directory of libclang: LIBCLANG_PATH if it is set, else the newest one found
  def libclang_path
    return ENV["LIBCLANG_PATH"] if ENV["LIBCLANG_PATH"]
    LIBCLANG_GLOBS.each do |glob|
      found = Dir[glob].reject { |path| path.include?("libclang-cpp") || path.include?("libclang_rt") }
      newest = found.max_by { |path| path[/llvm-(\d+)/, 1].to_i }
      return File.dirname(newest) if newest
    end
    nil
  end

  # Names the Ruby to compile for. The build script of rb-sys runs anew when RUBY or RUBY_VERSION changes, so an output
  # folder that was used with another Ruby is brought up to date by cargo: only what knows Ruby is compiled again.
  # @return [Hash{String => String}] environment variables for cargo
  def env
    { "LIBCLANG_PATH" => libclang_path, "RUBY" => RbConfig.ruby, "RUBY_VERSION" => RUBY_VERSION }.compact
  end

  # @return [Boolean] whether the openssl-sys crate will find OpenSSL
  def openssl?
    return true if ENV["OPENSSL_DIR"]
    system("pkg-config", "--exists", "openssl", out: File::NULL, err: File::NULL) || false
  end

  # @raise [Missing] when something the build needs is not installed
  def check!
    raise Missing, cargo_message unless cargo_ready?
    raise Missing, libclang_message unless libclang_path
    raise Missing, headers_message unless File.exist?(File.join(RbConfig::CONFIG["rubyhdrdir"].to_s, "ruby.h"))
    raise Missing, openssl_message unless openssl?
  end

  def cargo_message
    found = rust_installed ? "cargo #{rust_installed} is too old" : "cargo was not found"
    <<~TEXT
      #{found}: the Rust half of Chaton needs Rust #{rust_needed} or newer.
        Debian 12:  apt-get install cargo-web rustc-web   (its plain rustc is too old)
        elsewhere:  install Rust #{rust_needed}+ and put cargo on PATH, or set CARGO=/path/to/cargo
    TEXT
  end

  def libclang_message
    <<~TEXT
      libclang was not found: it reads ruby.h while the Rust half of Chaton is compiled.
        Debian 12:  apt-get install libclang-dev
        elsewhere:  install LLVM's libclang and set LIBCLANG_PATH to the directory that holds it
    TEXT
  end

  def openssl_message
    <<~TEXT
      OpenSSL was not found: the Kafka client of the Rust half of Chaton needs it for TLS and passwords.
        Debian 12:  apt-get install pkg-config libssl-dev zlib1g-dev
        elsewhere:  install OpenSSL with its headers and pkg-config, or set OPENSSL_DIR
    TEXT
  end

  def headers_message
    <<~TEXT
      ruby.h was not found for #{RbConfig.ruby}: the Rust half of Chaton is compiled against it.
        Debian 12:  apt-get install ruby-dev
    TEXT
  end
end
