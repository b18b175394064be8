# The root directory of a lane: another Debian release is installed in it, and the tests run there. Sourced by
# bin/matrix, which sets `seconds` to its time limit, or to nothing.

MATRIX_LANES="trixie sid experimental"
# Packages installed there: the needs of the tests, and that release's Rails, Puma and Sidekiq.
MATRIX_PACKAGES="ruby ruby-dev build-essential libclang-dev pkg-config libssl-dev zlib1g-dev ca-certificates rake
  ruby-rack ruby-rackup ruby-sinatra ruby-minitest puma ruby-sidekiq ruby-redis redis-server postgresql pgbouncer ruby-activejob
  ruby-railties ruby-activerecord ruby-actioncable ruby-sqlite3 ruby-nokogiri ruby-pg ruby-capybara libjemalloc2 libmimalloc3
  openssl nghttp2-client git yard default-jre-headless chromium"
# The rustc package of trixie is too old for the SQLite crate; rustc-web is newer.
matrix_packages() {
  if [ "$1" = trixie ]; then echo "$MATRIX_PACKAGES rustc-web cargo-web"
  else echo "$MATRIX_PACKAGES rustc cargo ruby-minitest-mock"; fi
}
# A mirror may lag behind, and the indexes of suites that change daily expire soon.
MATRIX_UPDATE="apt-get -o Acquire::Check-Valid-Until=false update -qq"
# The copy of the checkout and the output of cargo, as paths inside the root directory.
export MATRIX_CHECKOUT=/srv/chaton
MATRIX_TARGET=/var/tmp/chaton-target
# A lane does not start with less time than this: with everything to build, and with a root directory that is kept.
MATRIX_NEW_S_MIN=900
MATRIX_KEPT_S_MIN=300

matrix_folder() { echo "${CHATON_MATRIX_ROOT:-$HOME/.cache/chaton/matrix}"; }

# What this machine or its network lacks is no failure of a run with a time limit, which CI makes.
matrix_lacks() {
  [ -n "$seconds" ] || fail "$*"
  say "the lane is left out: $*"
  exit 0
}

matrix_check_machine() {
  [ "$(packages_system)" = debian ] || matrix_lacks "this machine does not run Debian, which has debootstrap"
  [ "$(id -u)" = 0 ] ||
    matrix_lacks "only root may mount /proc and change the root directory. Run:  sudo bin/matrix"
  matrix_alone true 2>/dev/null ||
    matrix_lacks "this machine refuses 'unshare --mount --pid', as containers do; use one that allows namespaces"
}

# Ends with a sentence about a lane or a part of the tests that does not exist.
matrix_check_words() {
  packages_install ruby rake
  MATRIX_LANES="$MATRIX_LANES" rake --silent "matrix:check[$(matrix_join "$@")]" >&2 || exit 1
}

matrix_check_time() {
  local least=$MATRIX_KEPT_S_MIN
  [ -n "$seconds" ] || return 0
  [ -e "$1$MATRIX_TARGET/debug/libchaton_native.so" ] || least=$MATRIX_NEW_S_MIN
  [ "$seconds" -ge "$least" ] || matrix_lacks "it needs $least s, and $seconds s are left"
}

matrix_seconds_left() { echo $((seconds > SECONDS ? seconds - SECONDS : 1)); }

matrix_join() { (IFS=,; echo "$*"); }

matrix_lock() {
  mkdir -p "$(dirname "$1")"
  exec 8>"$1.lock"
  flock --nonblock 8 || fail "another bin/matrix is running in $1"
}

# Experimental is not a complete suite; it extends sid.
matrix_base() { if [ "$1" = experimental ]; then echo sid; else echo "$1"; fi; }

# Prints the mirror from which this machine gets its own packages.
matrix_mirror() {
  local mirror
  mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    grep -v '^ *#' | grep -o 'https\?://[^ ]*/debian/\?\( \|$\)' | head -n 1 | tr -d ' ')
  echo "${mirror:-http://deb.debian.org/debian}"
}

# Unpacks a small Debian. An unfinished root directory is made again.
matrix_make_root() {
  local suite=$1 root=$2
  [ -e "$root/.chaton-ready" ] && return 0
  packages_install debootstrap
  say "making a Debian $suite in $root (once; about 3 GB with the build)"
  rm -rf --one-file-system "$root"
  matrix_alone debootstrap --variant=minbase "$(matrix_base "$suite")" "$root" "$(matrix_mirror)" \
    >"$root.log" 2>&1 || matrix_no_packages "$root" "debootstrap found no complete Debian at $(matrix_mirror)"
  [ "$suite" = "$(matrix_base "$suite")" ] ||
    echo "deb $(matrix_mirror) $suite main" >"$root/etc/apt/sources.list.d/$suite.list"
  touch "$root/.chaton-ready"
}

# Installs the missing packages there. The archive is contacted only when some are missing.
matrix_install_packages() {
  local suite=$1 root=$2 missing
  # shellcheck disable=SC2086 # several words
  missing=$(matrix_missing "$root" $(matrix_packages "$suite"))
  [ -n "$missing" ] || return 0
  say "installing in $suite:" $missing
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  # shellcheck disable=SC2086
  matrix_inside "$root" sh -c "$MATRIX_UPDATE"' && apt-get install -y -qq --no-install-recommends "$@"' sh $missing \
    >"$root.log" 2>&1 || matrix_no_packages "$root" "apt-get could not install $(echo $missing)"
  matrix_trust "$root"
}

# Installs the newest Ruby of the suite, which need not be its default `ruby`. The archive is contacted only once.
matrix_install_ruby() {
  local suite=$1 root=$2 newest
  [ "$suite" != "$(matrix_base "$suite")" ] || return 0
  newest=$(matrix_inside "$root" apt-cache pkgnames ruby | grep -xE 'ruby[0-9]+\.[0-9]+' | sort -V | tail -n 1)
  if [ -n "$(matrix_missing "$root" "$newest" "$newest-dev")" ]; then
    say "installing in $suite: $newest"
    matrix_inside "$root" apt-get install -y -qq --no-install-recommends -t "$suite" "$newest" "$newest-dev" \
      >"$root.log" 2>&1 || matrix_no_packages "$root" "apt-get could not install $newest"
  fi
  ln -sf "$newest" "$root/usr/bin/ruby"
}

matrix_no_packages() {
  matrix_lacks "$2: the network is down or the mirror is behind. The output is in $1.log. A root directory that has" \
    "all packages is used without the network; run bin/matrix again later"
}

# Copies the certificate authorities that this machine trusts beyond Debian's: cargo may download through a proxy.
matrix_trust() {
  local root=$1 own=/usr/local/share/ca-certificates
  cp -r "$own/." "$root$own/" 2>/dev/null || return 0
  matrix_inside "$root" update-ca-certificates >"$root.log" 2>&1 ||
    fail "update-ca-certificates failed in $root; its output is in $root.log"
}

matrix_missing() {
  local root=$1
  shift
  { dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true; } |
    awk -v wanted="$*" '$1 == "installed" { have[$2] = 1 }
      END { n = split(wanted, names, " "); for (i = 1; i <= n; i++) if (!(names[i] in have)) print names[i] }'
}

# Copies the sources, committed or not. An unchanged file stays as it is, so that cargo builds only what changed.
matrix_copy_checkout() {
  local copy=$1$MATRIX_CHECKOUT allocator=lib/chaton/libchaton_jemalloc.so
  # This is what will be tested, even if there is a new commit before the tests have ended.
  matrix_commit=$(git -c safe.directory="$PWD" describe --always --abbrev=7 --dirty=+)
  git -c safe.directory="$PWD" ls-files -z --cached --others --exclude-standard | rake --silent "matrix:copy[$copy]"
  # It knows no Ruby, so one that was built here with the same or an older C library need not be built again.
  if [ -e $allocator ] && [ ! -e "$copy/$allocator" ] &&
    dpkg --compare-versions "$(matrix_libc /)" le "$(matrix_libc "$1")"; then
    cp $allocator "$copy/$allocator"
  fi
}

matrix_libc() { dpkg-query --admindir="$1/var/lib/dpkg" -W -f '${Version}' libc6; }

# Builds the extension, runs the tests and records their results.
matrix_test() {
  local lane=$1 root=$2 status=0
  shift 2
  say "building the extension"
  [ -z "$seconds" ] || matrix_limit=(timeout --signal=KILL "$(matrix_seconds_left)")
  matrix_run "$root" rake --silent compile || status=$?
  matrix_limit=()
  [ -z "$seconds" ] || [ "$(matrix_seconds_left)" -gt 1 ] ||
    matrix_lacks "the time was over before the extension was built"
  [ "$status" = 0 ] || fail "the extension could not be built in $root"
  matrix_run "$root" ruby rakelib/support/versions.rb >"$root.versions"
  say "testing: $*"
  rm -f "$root$MATRIX_CHECKOUT/tmp/test_result.json"
  matrix_run "$root" env CHATON_TEST_SECONDS="${seconds:+$(matrix_seconds_left)}" \
    CHATON_TEST_AGAIN="${CHATON_TEST_AGAIN:-0}" rake --silent "test[$(matrix_join "$@")]" || status=$?
  rake --silent "matrix:record[$lane,$root.versions,$root$MATRIX_CHECKOUT/tmp/test_result.json,$matrix_commit]"
  return "$status"
}

# Builds the extension and runs the program of bin/bench, whose results are then copied into this checkout. Variables name
# sources of peers that Debian does not have, as folders inside the root directory.
matrix_bench() {
  local lane=$1 root=$2 profile=${CHATON_PROFILE:-release} status=0
  shift 2
  say "building the extension (profile $profile)"
  matrix_run "$root" env CHATON_PROFILE="$profile" rake --silent compile ||
    fail "the extension could not be built in $root"
  matrix_run "$root" env CHATON_PROFILE="$profile" CHATON_BENCH_COMMIT="$(git rev-parse --short HEAD)" \
    ${CHATON_BENCH_SOLID_QUEUE:+"CHATON_BENCH_SOLID_QUEUE=$CHATON_BENCH_SOLID_QUEUE"} \
    ${CHATON_BENCH_GOOD_JOB:+"CHATON_BENCH_GOOD_JOB=$CHATON_BENCH_GOOD_JOB"} \
    CHATON_BENCH_COMMAND="${matrix_command:-bin/matrix $lane bench $*}" ruby bench/main.rb "$@" || status=$?
  cp --recursive --no-clobber "$root$MATRIX_CHECKOUT/bench/runs/." bench/runs/
  return "$status"
}

# Runs a command in the copy of the checkout, with the variables of the lane.
matrix_env=()
matrix_run() {
  local root=$1
  shift
  # shellcheck disable=SC2016 # expanded inside
  matrix_inside "$root" env CARGO_TARGET_DIR=$MATRIX_TARGET "${matrix_env[@]}" sh -c 'cd "$0" && exec "$@"' \
    $MATRIX_CHECKOUT "$@"
}

# Runs a command in the other root directory.
matrix_inside() {
  matrix_alone bash -c "$(declare -f matrix_mounts)"'; matrix_mounts "$1" && exec chroot "$@"' matrix "$1" \
    env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "${@:2}"
}

# The crates that cargo has downloaded for this machine and the broker of the tests are shared.
matrix_mounts() {
  local root=$1 registry=${CARGO_HOME:-$HOME/.cargo}/registry
  local kafka=tmp/kafka/libs
  mkdir -p "$root/dev/pts" "$root/dev/shm" "$root/root/.cargo/registry" "$registry" &&
    mount -t proc proc "$root/proc" &&
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts" &&
    mount -t tmpfs tmpfs "$root/dev/shm" &&
    mount --rbind /sys "$root/sys" &&
    mount --bind "$registry" "$root/root/.cargo/registry" || return
  [ -e "$kafka/.complete" ] || return 0
  mkdir -p "$root$MATRIX_CHECKOUT/$kafka" && mount --bind "$kafka" "$root$MATRIX_CHECKOUT/$kafka"
}

# Runs a command in namespaces of its own, so that its mounts and processes always end with it, and it with bin/matrix.
matrix_limit=()
matrix_alone() {
  setpriv --pdeathsig KILL "${matrix_limit[@]}" \
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child "$@"
}
