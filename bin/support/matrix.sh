# A Debian of another release in a folder, to test in. Sourced by bin/matrix.

# What is installed there: what the tests need, and Puma and Sidekiq as that suite has them.
MATRIX_PACKAGES="ruby ruby-dev build-essential libclang-dev pkg-config libssl-dev zlib1g-dev ca-certificates rake
  ruby-rack ruby-rackup ruby-sinatra ruby-minitest puma ruby-sidekiq ruby-redis redis-server ruby-activejob
  ruby-railties ruby-activerecord ruby-actioncable ruby-sqlite3 ruby-nokogiri ruby-pg libjemalloc2 libmimalloc3
  openssl git"
# Rust besides the compiler that trixie began with, which is too old for the SQLite and Redis crates.
matrix_packages() {
  if [ "$1" = trixie ]; then echo "$MATRIX_PACKAGES rustc-web cargo-web"
  else echo "$MATRIX_PACKAGES rustc cargo ruby-minitest-mock"; fi
}
# A mirror may be behind, and the suites that change daily say soon that they are out of date.
MATRIX_UPDATE="apt-get -o Acquire::Check-Valid-Until=false update -qq"
# Where the copy of the checkout lies and where cargo builds, as seen from inside.
MATRIX_CHECKOUT=/srv/chaton
MATRIX_TARGET=/var/tmp/chaton-target

matrix_folder() { echo "${CHATON_MATRIX_ROOT:-$PWD/tmp/matrix}"; }

# Experimental is no whole archive: it lies upon sid.
matrix_base() { if [ "$1" = experimental ]; then echo sid; else echo "$1"; fi; }

# The mirror this machine's own packages come from.
matrix_mirror() {
  local mirror
  mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    grep -v '^ *#' | grep -o 'https\?://[^ ]*/debian/\?\( \|$\)' | head -n 1 | tr -d ' ')
  echo "${mirror:-http://deb.debian.org/debian}"
}

# Unpacks a small Debian. A root that was not finished is made again.
matrix_make_root() {
  local suite=$1 root=$2
  [ -e "$root/.chaton-ready" ] && return 0
  say "making a Debian $suite in $root (about 3 GB when built in, once)"
  mkdir -p "$(dirname "$root")"
  rm -rf --one-file-system "$root"
  matrix_alone debootstrap --variant=minbase "$(matrix_base "$suite")" "$root" "$(matrix_mirror)" \
    >"$root.log" 2>&1 || fail "debootstrap failed; what it said is in $root.log"
  [ "$suite" = "$(matrix_base "$suite")" ] ||
    echo "deb $(matrix_mirror) $suite main" >"$root/etc/apt/sources.list.d/$suite.list"
  touch "$root/.chaton-ready"
}

# Installs what is missing there; asks the archive only then.
matrix_install_packages() {
  local suite=$1 root=$2 missing
  # shellcheck disable=SC2086 # words are meant
  missing=$(matrix_missing "$root" $(matrix_packages "$suite"))
  [ -n "$missing" ] || return 0
  say "installing in $suite:" $missing
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  # shellcheck disable=SC2086
  matrix_inside "$root" sh -c "$MATRIX_UPDATE"' && apt-get install -y -qq --no-install-recommends "$@"' sh $missing \
    >"$root.log" 2>&1 || fail "apt-get failed in $root; what it said is in $root.log"
  matrix_trust "$root"
}

# The newest Ruby that the suite has, which need not be the one it starts as `ruby`. Asks the archive only once.
matrix_install_ruby() {
  local suite=$1 root=$2 newest
  [ "$suite" != "$(matrix_base "$suite")" ] || return 0
  newest=$(matrix_inside "$root" apt-cache pkgnames ruby | grep -xE 'ruby[0-9]+\.[0-9]+' | sort -V | tail -n 1)
  if [ -n "$(matrix_missing "$root" "$newest" "$newest-dev")" ]; then
    say "installing in $suite: $newest"
    matrix_inside "$root" apt-get install -y -qq --no-install-recommends -t "$suite" "$newest" "$newest-dev" \
      >"$root.log" 2>&1 || fail "apt-get failed in $root; what it said is in $root.log"
  fi
  ln -sf "$newest" "$root/usr/bin/ruby"
}

# The authorities that this machine trusts beyond Debian's, as behind a proxy: cargo downloads through it there, too.
matrix_trust() {
  local root=$1 own=/usr/local/share/ca-certificates
  cp -r "$own/." "$root$own/" 2>/dev/null || return 0
  matrix_inside "$root" update-ca-certificates >"$root.log" 2>&1 ||
    fail "update-ca-certificates failed in $root; what it said is in $root.log"
}

matrix_missing() {
  local root=$1
  shift
  { dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true; } |
    awk -v wanted="$*" '$1 == "installed" { have[$2] = 1 }
      END { n = split(wanted, names, " "); for (i = 1; i <= n; i++) if (!(names[i] in have)) print names[i] }'
}

# A fresh copy of what people wrote, committed or not. Files keep their times, so that cargo builds what changed.
matrix_copy_checkout() {
  local copy=$1$MATRIX_CHECKOUT
  rm -rf --one-file-system "$copy"
  mkdir -p "$copy"
  # A file deleted but not yet committed is listed and not there.
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

# Runs a command in the other root.
matrix_inside() {
  local root=$1
  shift
  # shellcheck disable=SC2016 # expanded in the shell that mounts
  matrix_alone sh -c 'mkdir -p "$0/dev/pts" && mount -t proc proc "$0/proc" &&
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$0/dev/pts" && exec chroot "$0" "$@"' "$root" \
    env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}

# In name spaces of its own: what was mounted or started there is gone when the command ends, however it ends.
matrix_alone() { unshare --mount --pid --fork --kill-child "$@"; }
