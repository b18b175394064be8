# Debian packages: what Chaton's own commands need, why, and how to get what is missing.
# Sourced by bin/setup.

# package | what it is for | the commands that need it (build: all of them)
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
libjemalloc2|the allocator that servers are started with; without it Chaton's own copy|demo
ruby-sinatra|example application|demo
wrk|makes the load|demo
puma|the server Chaton is compared with|demo
ruby-minitest|runs the tests|test
redis-server|the distributed job store that jobs are tested against|test
ruby-sidekiq|the job processor whose format, API and pages are tested against|test
ruby-redis|Sidekiq's Redis client|test
ruby-activejob|the adapter for ActiveJob|test
maven|fetches the Kafka broker that streams are tested against|test
default-jre-headless|runs that broker|test
openssl|makes the certificates of the TLS tests|test
rubocop|checks the Ruby style|test
yard|checks that the public API is documented|test
ruby-railties|Rails example: boot|test
ruby-activerecord|Rails example: model|test
ruby-sqlite3|Rails example: database|test
ruby-nokogiri|a native gem whose objects are moved by compaction|test
ruby-pg|the same|test
libmimalloc2.0|the other allocator that can be chosen|test
ruby-actioncable|Rails example: WebSockets|test
TABLE
}

packages_wanted() {
  packages_table | awk -F'|' -v level="$1" '
    $3 == "build" || ($3 == "demo" && level != "build") || level == "test" { print $1 }'
}

# Names of the given packages that are not installed, one a line.
packages_missing() {
  # dpkg-query fails when it has never heard of one of them; what it printed counts all the same.
  { dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true; } |
    awk -v wanted="$*" '$1 == "installed" { have[$2] = 1 }
      END { n = split(wanted, names, " "); for (i = 1; i <= n; i++) if (!(names[i] in have)) print names[i] }'
}

packages_system() {
  [ -r /etc/os-release ] || { echo unknown; return; }
  ( . /etc/os-release && echo "${ID:-unknown}" )
}

# Installs what is missing of the named packages, after saying what and why.
packages_install() {
  local missing why
  missing=$(packages_missing "$@")
  [ -n "$missing" ] || return 0
  for name in $missing; do
    why=$(packages_table | awk -F'|' -v name="$name" '$1 == name { print $2 }')
    say "missing: $name (${why:-part of the Rust toolchain})"
  done
  if [ "$(id -u)" != 0 ]; then
    fail "not root, so nothing was installed. Run:  sudo apt-get install --no-install-recommends $(echo $missing)"
  fi
  if [ -z "${packages_updated:-}" ]; then
    say "apt-get update"
    apt-get update -qq || fail "apt-get update failed: are Debian's packages reachable?"
    packages_updated=yes
  fi
  say "apt-get install" $missing
  # Recommended packages would bring in a desktop's worth of things that no command here uses.
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null ||
    fail "apt-get could not install: $(echo $missing)"
}
