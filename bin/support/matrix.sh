# Installs another Debian release in a directory and runs commands there. Sourced by bin/matrix.

# Packages installed there: the needs of the tests, and that release's Puma and Sidekiq.
MATRIX_PACKAGES="ruby ruby-dev build-essential libclang-dev pkg-config libssl-dev zlib1g-dev ca-certificates rake
  ruby-rack ruby-rackup ruby-sinatra ruby-minitest puma ruby-sidekiq ruby-redis redis-server ruby-activejob
  ruby-railties ruby-activerecord ruby-actioncable ruby-sqlite3 ruby-nokogiri ruby-pg libjemalloc2 libmimalloc3
  openssl git"
# The rustc package of trixie is too old for the SQLite crate; rustc-web is newer.
matrix_packages() {
  if [ "$1" = trixie ]; then echo "$MATRIX_PACKAGES rustc-web cargo-web"
  else echo "$MATRIX_PACKAGES rustc cargo ruby-minitest-mock"; fi
}
# A mirror may lag behind, and the indexes of suites that change daily expire soon.
MATRIX_UPDATE="apt-get -o Acquire::Check-Valid-Until=false update -qq"
# The copy of the checkout and the output of cargo, as paths inside the root directory.
MATRIX_CHECKOUT=/srv/chaton
MATRIX_TARGET=/var/tmp/chaton-target

matrix_folder() { echo "${CHATON_MATRIX_ROOT:-$PWD/tmp/matrix}"; }

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
  say "making a Debian $suite in $root (once; about 3 GB with the build)"
  mkdir -p "$(dirname "$root")"
  rm -rf --one-file-system "$root"
  matrix_alone debootstrap --variant=minbase "$(matrix_base "$suite")" "$root" "$(matrix_mirror)" \
    >"$root.log" 2>&1 || fail "debootstrap failed; its output is in $root.log"
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
    >"$root.log" 2>&1 || fail "apt-get failed in $root; its output is in $root.log"
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
      >"$root.log" 2>&1 || fail "apt-get failed in $root; its output is in $root.log"
  fi
  ln -sf "$newest" "$root/usr/bin/ruby"
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

# Copies the sources, committed or not. Files keep their times, so that cargo builds only those that changed.
matrix_copy_checkout() {
  local copy=$1$MATRIX_CHECKOUT
  rm -rf --one-file-system "$copy"
  mkdir -p "$copy"
  # git also lists files whose deletion is not committed yet.
  git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2>/dev/null |
    tar --create --files-from=- | tar --extract --directory="$copy"
}

matrix_versions() {
  matrix_inside "$1" ruby -e 'require "rack"; puts "Ruby #{RUBY_VERSION}, Rack #{Rack.release}, #{`rustc --version`}"'
}

# Runs a command in the copy of the checkout.
matrix_run() {
  local root=$1
  shift
  # shellcheck disable=SC2016 # expanded inside
  matrix_inside "$root" env CARGO_TARGET_DIR=$MATRIX_TARGET sh -c 'cd "$0" && exec nice "$@"' $MATRIX_CHECKOUT "$@"
}

# Runs a command in the other root directory.
matrix_inside() {
  local root=$1
  shift
  # shellcheck disable=SC2016 # expanded in the shell that mounts
  matrix_alone sh -c 'mkdir -p "$0/dev/pts" && mount -t proc proc "$0/proc" &&
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$0/dev/pts" && exec chroot "$0" "$@"' "$root" \
    env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}

# Runs a command in namespaces of its own, so that its mounts and processes always end with it.
matrix_alone() { unshare --mount --pid --fork --kill-child "$@"; }
