# A Debian of another release in a folder, to test in. Sourced by bin/matrix.

# What is installed there.
MATRIX_PACKAGES="ruby ruby-dev build-essential libclang-dev ca-certificates rustc cargo rake ruby-rack ruby-rackup
  ruby-sinatra ruby-minitest puma"
# Where the copy of the checkout lies and where cargo builds, as seen from inside.
MATRIX_CHECKOUT=/srv/chaton
MATRIX_TARGET=/var/tmp/chaton-target

matrix_folder() { echo "${CHATON_MATRIX_ROOT:-/var/tmp/chaton-matrix}"; }

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
  say "making a Debian $suite in $root (about 300 MB, once)"
  mkdir -p "$(dirname "$root")"
  rm -rf --one-file-system "$root"
  matrix_alone debootstrap --variant=minbase "$suite" "$root" "$(matrix_mirror)" >"$root.log" 2>&1 ||
    fail "debootstrap failed; what it said is in $root.log"
  touch "$root/.chaton-ready"
}

# Installs what is missing there; asks the archive only then.
matrix_install_packages() {
  local suite=$1 root=$2 missing
  # shellcheck disable=SC2086 # words are meant
  missing=$(matrix_missing "$root" $MATRIX_PACKAGES)
  [ -n "$missing" ] || return 0
  say "installing in $suite:" $missing
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  # shellcheck disable=SC2086
  matrix_inside "$root" sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"' sh $missing \
    >"$root.log" 2>&1 || fail "apt-get failed in $root; what it said is in $root.log"
  matrix_trust "$root"
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
  matrix_alone sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' "$root" \
    env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}

# In name spaces of its own: what was mounted or started there is gone when the command ends, however it ends.
matrix_alone() { unshare --mount --pid --fork --kill-child "$@"; }
