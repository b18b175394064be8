# frozen_string_literal: true

# Writes a Makefile that runs `cargo build --release` and copies the library. Plain mkmf is enough for that; there is
# no helper gem.
#
#   gem install chaton -- --without-bundled-allocator     without the bundled jemalloc (a minute less)

require "rbconfig"

# Elsewhere there is nothing to compile; the gem installs, so that an application's `bundle install` works.
unless RbConfig::CONFIG["host_os"].start_with?("linux")
  puts "Chaton serves on Linux: nothing is compiled on #{RbConfig::CONFIG["host_os"]}. Use Puma for development here."
  File.write("Makefile", "all install clean distclean:\n\t@:\n.PHONY: all install clean distclean\n")
  exit
end

require "mkmf"
require "shellwords"
require_relative "before_start"
require_relative "bundled_allocator"
require_relative "toolchain"

begin
  Toolchain.check!
rescue Toolchain::Missing => e
  # mkmf's abort would refer to its log, which does not contain more.
  warn "\nChaton's native extension cannot be built.\n\n#{e.message}\n"
  exit 1
end

# Ruby loads the library as "chaton/chaton_native" and calls Init_chaton_native in it; cargo names the file after the
# library in ext/chaton/Cargo.toml.
CRATE = "chaton-ext"
BUILT = "libchaton_native.so"
INSTALLED = "chaton_native.#{RbConfig::CONFIG["DLEXT"]}".freeze

cargo = [Toolchain.cargo, "build", "--locked", "--release", "--package", CRATE]

allocator = with_config("bundled-allocator", true)
builder = ->(name) { [RbConfig.ruby, File.join(__dir__, name)].shelljoin }

File.write("Makefile", <<~MAKEFILE)
  # Written by extconf.rb.
  SHELL = /bin/sh
  DESTDIR =
  sitearchdir = #{RbConfig::CONFIG["sitearchdir"]}
  ROOT = #{Toolchain::ROOT.shellescape}
  export LIBCLANG_PATH = #{Toolchain.libclang_path}
  export RUBY = #{RbConfig.ruby}
  export RUBY_VERSION = #{RUBY_VERSION}
  export CARGO_TARGET_DIR = $(ROOT)/target

  all:
  \tcd $(ROOT) && #{cargo.shelljoin}
  \t#{builder["before_start.rb"]} $(CARGO_TARGET_DIR)/#{BeforeStart::NAME}
  \t#{allocator ? "#{builder["bundled_allocator.rb"]} $(CARGO_TARGET_DIR)/#{BundledAllocator::NAME}" : "@:"}

  # A gem keeps only the shared object; target/ is a hundred times larger.
  install: all
  \tmkdir -p $(DESTDIR)$(sitearchdir)/chaton
  \tcp $(CARGO_TARGET_DIR)/release/#{BUILT} $(DESTDIR)$(sitearchdir)/chaton/#{INSTALLED}
  \tfor name in #{BeforeStart::NAME} #{BundledAllocator::NAME}; do \\
  \t  if [ -f $(CARGO_TARGET_DIR)/$$name ]; then \\
  \t    cp $(CARGO_TARGET_DIR)/$$name $(DESTDIR)$(sitearchdir)/chaton/; fi; done
  \trm -rf $(CARGO_TARGET_DIR)

  clean distclean:
  \t@:

  .PHONY: all install clean distclean
MAKEFILE
