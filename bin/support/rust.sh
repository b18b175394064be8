# Finds a Rust toolchain that is new enough, or installs Debian's. Sourced by bin/setup.

rust_ready() { ruby -r./ext/chaton/toolchain -e 'exit Toolchain.cargo_ready?'; }

# Debian 12 has two: `rustc` is from 2022; `rustc-web`, with which browsers are built, is new enough.
rust_install() {
  rust_ready && return 0
  local needed
  needed=$(ruby -r./ext/chaton/toolchain -e 'print Toolchain.rust_needed')
  say "no cargo $needed or newer on PATH: installing Debian's cargo-web (its plain rustc is too old)"
  packages_install rustc-web cargo-web
  hash -r
  rust_ready || fail "cargo is still not usable: $(command -v cargo || echo 'not on PATH') (needs $needed)"
}

# Rust's own installer brings `cargo fmt` and `cargo clippy`; Debian has separate packages for them.
rust_install_linters() {
  cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return 0
  case "$(command -v cargo)" in
    /usr/bin/*) packages_install rustfmt-web rust-web-clippy ;;
    *) fail "this cargo has no fmt or clippy: add its rustfmt and clippy components" ;;
  esac
}
