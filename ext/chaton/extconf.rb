# frozen_string_literal: true

# Writes a Makefile whose only compiler is cargo. Plain mkmf, no helper gem: what has to happen is one
# `cargo build` and one copy.
#
#   gem install chaton -- --with-features=web             build only these engines (default: all of them)
#   gem install chaton -- --without-bundled-allocator     no jemalloc of our own (a minute less)

require "mkmf"
require "shellwords"
require_relative "bundled_allocator"
require_relative "toolchain"

features = with_config("features")

begin
  Toolchain.check!(streams: features.nil? || features.include?("streams"))
rescue Toolchain::Missing => e
  # mkmf's abort would point at its log, which holds nothing more than this.
  warn "\nChaton's native extension cannot be built.\n\n#{e.message}\n"
  exit 1
end

# The shared object is asked for as "chaton/chaton_native", so Ruby looks for Init_chaton_native in it;
# cargo names its file after the library of ext/chaton/Cargo.toml.
CRATE = "chaton-ext"
BUILT = "libchaton_native.#{RbConfig::CONFIG["host_os"].include?("darwin") ? "dylib" : "so"}".freeze
INSTALLED = "chaton_native.#{RbConfig::CONFIG["DLEXT"]}".freeze

cargo = [Toolchain.cargo, "build", "--locked", "--release", "--package", CRATE]
cargo += ["--no-default-features", "--features", features] if features

allocator = with_config("bundled-allocator", true)
builder = [RbConfig.ruby, File.join(__dir__, "bundled_allocator.rb")].shelljoin

File.write("Makefile", <<~MAKEFILE)
  # Written by extconf.rb.
  SHELL = /bin/sh
  DESTDIR =
  sitearchdir = #{RbConfig::CONFIG["sitearchdir"]}
  ROOT = #{Toolchain::ROOT.shellescape}
  export LIBCLANG_PATH = #{Toolchain.libclang_path}
  export RUBY = #{RbConfig.ruby}
  export CARGO_TARGET_DIR = $(ROOT)/target

  all:
  \tcd $(ROOT) && #{cargo.shelljoin}
  \t#{allocator ? "#{builder} $(CARGO_TARGET_DIR)/#{BundledAllocator::NAME}" : "@:"}

  # A gem keeps the shared object only: target/ is a hundred times its size.
  install: all
  \tmkdir -p $(DESTDIR)$(sitearchdir)/chaton
  \tcp $(CARGO_TARGET_DIR)/release/#{BUILT} $(DESTDIR)$(sitearchdir)/chaton/#{INSTALLED}
  \tif [ -f $(CARGO_TARGET_DIR)/#{BundledAllocator::NAME} ]; then \\
  \t  cp $(CARGO_TARGET_DIR)/#{BundledAllocator::NAME} $(DESTDIR)$(sitearchdir)/chaton/; fi
  \trm -rf $(CARGO_TARGET_DIR)

  clean distclean:
  \t@:

  .PHONY: all install clean distclean
MAKEFILE
