# The Debian packages that Chaton's own commands need, and how the missing ones are installed. Sourced by bin/setup.

# package | its purpose | the commands that need it (build: all of them; bench: bin/bench web and the tests)
packages_table() {
  cat <<'TABLE'
ruby|runs everything|build
ruby-dev|ruby.h, against which the extension is compiled|build
build-essential|the linker and C library that rustc uses|build
libclang-dev|reads ruby.h to make Rust declarations of it|build
ca-certificates|lets cargo download crates|build
pkg-config|finds the C libraries of the Kafka client|build
libssl-dev|TLS and passwords of the Kafka client|build
zlib1g-dev|compression of the Kafka client|build
rake|runs the build|build
ruby-rack|the interface Chaton serves|build
libjemalloc2|the allocator that servers are started with; otherwise Chaton builds its own copy|demo
ruby-sinatra|example application|demo
wrk|makes the load|demo
puma|the server Chaton is compared with|demo
ruby-minitest|runs the tests|test
redis-server|the distributed job store that jobs are tested against|demo
postgresql|the other distributed job store|test
pgbouncer|the pooler before it, whose transaction mode is tested|test
ruby-sidekiq|the job processor with whose format, API and pages Chaton is compatible|demo
ruby-redis|Sidekiq's Redis client|demo
ruby-activejob|the adapter for ActiveJob|test
maven|fetches the Kafka broker that streams are tested against|test
default-jre-headless|runs that broker|test
openssl|makes the certificates of the TLS tests|test
nghttp2-client|the client of the HTTP/2 tests and benchmarks|test
rubocop|checks the Ruby style|test
yard|checks that the public API is documented|test
ruby-railties|Rails example and benchmark: boot|demo
ruby-activerecord|Rails example and benchmark: model|demo
ruby-sqlite3|Rails example and benchmark: database|demo
ruby-capybara|system tests on Chaton|test
ruby-nokogiri|a native gem whose objects are moved by compaction|test
ruby-pg|another such gem|test
ruby-sequel|another such gem|test
libmimalloc2.0|the other allocator that can be chosen|test
ruby-actioncable|Rails example: WebSockets|demo
chromium|runs the script of the dashboard's page|test
TABLE
}

packages_wanted() {
  packages_table | awk -F'|' -v level="$1" '
    $3 == "build" || ($3 == "demo" && level != "build") || $3 == level || level == "test" { print $1 }'
}

# Prints the names of the given packages that are not installed, one per line.
packages_missing() {
  # dpkg-query fails when it does not know one of them, but still prints the others.
  { dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true; } |
    awk -v wanted="$*" '$1 == "installed" { have[$2] = 1 }
      END { n = split(wanted, names, " "); for (i = 1; i <= n; i++) if (!(names[i] in have)) print names[i] }'
}

packages_system() {
  [ -r /etc/os-release ] || { echo unknown; return; }
  ( . /etc/os-release && echo "${ID:-unknown}" )
}

# Installs those of the named packages that are missing, after printing them with their purposes.
packages_install() {
  local missing why
  missing=$(packages_missing "$@")
  [ -n "$missing" ] || return 0
  for name in $missing; do
    why=$(packages_table | awk -F'|' -v name="$name" '$1 == name { print $2 }')
    say "missing: $name (${why:-part of the Rust toolchain})"
  done
  if [ "$(id -u)" != 0 ]; then
    fail "packages are missing and only root can install them. Run:  sudo apt-get install --no-install-recommends $(echo $missing)"
  fi
  if [ -z "${packages_updated:-}" ]; then
    bin/support/progress "apt-get update" apt-get update -q ||
      fail "apt-get update failed: can this machine reach Debian's packages?"
    packages_updated=yes
  fi
  # Recommended packages would bring in a desktop's worth of software that no command here uses.
  DEBIAN_FRONTEND=noninteractive bin/support/progress "installing packages" \
    apt-get install -y -q --no-install-recommends $missing || fail "apt-get could not install: $(echo $missing)"
}
