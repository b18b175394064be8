# frozen_string_literal: true

require "fileutils"
require "shellwords"
require_relative "../../ext/chaton/toolchain"

# The C compiler and linker of platform gems: zig has the headers and the symbols of each version of the GNU C library
# for each processor, so that what it links runs with an older C library than this machine's.
class ZigToolchain
  # zig is not there.
  class Missing < StandardError; end

  # Of a platform: how Rust and zig name it, and zig's folder of headers.
  Names = Struct.new(:rust, :zig, :headers)
  PLATFORMS = {
    "x86_64-linux-gnu" => Names.new("x86_64-unknown-linux-gnu", "x86_64-linux-gnu", "x86"),
    "aarch64-linux-gnu" => Names.new("aarch64-unknown-linux-gnu", "aarch64-linux-gnu", "aarch64")
  }.freeze
  # rustc names the unwinder of GCC, and zig has its own. Build scripts name the target in Rust's way. zig's checks of
  # undefined behaviour would stop the process, and its debug information is not kept. A function in its own section is
  # left out where nothing calls it. No exception passes through C, so it needs no tables for that.
  COMPILER = <<~'BASH'
    #!/bin/bash
    arguments=()
    for argument in "$@"; do
      case $argument in
        --target=*) continue ;;
        -lgcc_s) argument=-lunwind ;;
        -c) arguments+=(-ffunction-sections -fdata-sections -fno-unwind-tables -fno-asynchronous-unwind-tables) ;;
      esac
      arguments+=("$argument")
    done
    exec %<zig>s %<language>s -target %<target>s -fno-sanitize=undefined "${arguments[@]}" -g0
  BASH

  # OpenSSL would be a third of a shared object. The Kafka client needs TLS over TCP with the usual algorithms, and
  # hashes for passwords; what it computes most is in assembler.
  OPENSSL_OPTIONS = %w[
    -Oz no-afalgeng no-argon2 no-aria no-async no-bf no-blake2 no-capieng no-cast no-cmp no-cms no-ct
    no-default-thread-pool no-devcryptoeng no-dsa no-dso no-dtls no-ec2m no-engine no-filenames no-gost no-http
    no-integrity-only-ciphers no-ktls no-legacy no-lms no-md4 no-mdc2 no-ml-dsa no-multiblock no-nextprotoneg no-ocb
    no-ocsp no-padlockeng no-quic no-rc2 no-rc4 no-rfc3779 no-rmd160 no-scrypt no-siphash no-siv no-slh-dsa no-sm2
    no-sm3 no-sm4 no-srp no-srtp no-ssl-trace no-tfo no-thread-pool no-tls-deprecated-ec no-ts no-ui-console
    no-whirlpool
  ].freeze
  # What builds OpenSSL runs `perl ./Configure` with its own options. AES-GCM for AVX-512 would be 0.7 MB, of which a
  # client notices nothing: for an older compiler its generator leaves it out.
  PERL = <<~'SH'
    #!/bin/sh
    case $1 in
      ./Configure) PERL=$0; export PERL; set -- "$@" %<options>s ;;
      */aes-gcm-avx512.pl) CC='echo clang version 6.0'; export CC ;;
    esac
    exec perl "$@"
  SH
  # Parts of SQLite that the job store does not use.
  SQLITE_FLAGS = %w[FTS3 FTS3_PARENTHESIS FTS5 RTREE DBSTAT_VTAB].map { |name| "-USQLITE_ENABLE_#{name}" }.freeze
  private_constant :COMPILER, :PERL

  # @param platform [String] a key of PLATFORMS
  # @param glibc [String] the oldest version of the GNU C library
  # @param folder [String] for the programs that this writes
  # @raise [Missing]
  def initialize(platform, glibc:, folder:)
    @names = PLATFORMS.fetch(platform)
    @glibc = glibc
    @folder = folder
    @zig = find
  end

  # @return [String] the target, as cargo names it
  def rust_target = @names.rust

  # @return [String] path of the C compiler
  def compiler = File.join(@folder, "cc")

  # @return [String] folder of zig's licences and headers
  def library = @library ||= `#{@zig.shelljoin} env`[/\.?"?lib_dir"?\s*[=:]\s*"([^"]+)"/, 1]

  # Writes the programs.
  # @return [ZigToolchain]
  def write
    FileUtils.mkdir_p(@folder)
    { "cc" => "cc", "c++" => "c++" }.each { |name, language| program(name, compile(language)) }
    program("perl", format(PERL, options: OPENSSL_OPTIONS.join(" ")))
    %w[ar ranlib].each { |name| program(name, "#!/bin/sh\nexec #{@zig.shelljoin} #{name} \"$@\"\n") }
    self
  end

  # @return [Hash{String=>String}] environment variables for cargo
  def env
    tools = { "CC" => "cc", "CXX" => "c++", "AR" => "ar", "RANLIB" => "ranlib" }
    ours = tools.transform_values { |name| File.join(@folder, name) }
    {
      # The last names are for configure scripts, the others for build scripts, some of which compile for this machine.
      **tools.transform_keys { |name| "HOST_#{name}" },
      **ours.transform_keys { |name| "#{name}_#{rust_target.tr("-", "_")}" }, **ours,
      "OPENSSL_SRC_PERL" => File.join(@folder, "perl"), "LIBSQLITE3_FLAGS" => SQLITE_FLAGS.join(" "),
      # librdkafka also links a shared library, which is not used, and names functions there that it does not have.
      "LDFLAGS" => "-Wl,--undefined-version",
      # The libraries of this machine are not those of the target.
      "PKG_CONFIG_LIBDIR" => @folder, "PKG_CONFIG_ALLOW_CROSS" => "1",
      "BINDGEN_EXTRA_CLANG_ARGS" => bindgen_flags.shelljoin,
      "CARGO_ENCODED_RUSTFLAGS" => rust_flags.join("\x1F")
    }
  end

  private

  def find
    [ENV["CHATON_ZIG"]&.shellsplit, ["zig"], ["python3", "-m", "ziglang"]].compact.find { |words| runs?(words) } or
      raise Missing, "zig was not found: `pip install ziglang`, or set CHATON_ZIG to its path"
  end

  def runs?(words) = system(*words, "version", out: File::NULL, err: File::NULL)

  def compile(language)
    format(COMPILER, zig: @zig.shelljoin, language: language, target: "#{@names.zig}.#{@glibc}")
  end

  def program(name, text)
    path = File.join(@folder, name)
    File.write(path, text)
    File.chmod(0o755, path)
  end

  def headers
    ["#{@names.headers}-linux-gnu", "generic-glibc", "#{@names.headers}-linux-any", "any-linux-any"]
      .map { |name| File.join(library, "libc/include", name) }
  end

  # zig links, so rustc's own linker is switched off where it is on. A table of symbols would be a fourth of each shared
  # object.
  def rust_flags
    ["-Clinker=#{compiler}", "-Cstrip=symbols", *("-Clinker-features=-lld" if rust_target.start_with?("x86_64"))]
  end

  def bindgen_flags
    ["-nostdlibinc", "-D__GLIBC_MINOR__=#{@glibc[/\d+\z/]}", *headers.flat_map { |path| ["-isystem", path] }]
  end
end
