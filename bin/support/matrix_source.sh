# shellcheck shell=bash
# The lane of a Ruby that is built from a checkout of its source. Sourced by bin/matrix.

# Such a Ruby is built in the root directory of Debian experimental. Its Ruby builds the new one; its gems are used if they
# have no C code.
MATRIX_SOURCE_PACKAGES="autoconf libyaml-dev libffi-dev libgmp-dev libreadline-dev libsqlite3-dev dpkg-dev"
# Gems with C code that the tests need, and the Debian source packages from which they are built, in the order of their
# needs. CHATON_MATRIX_GEMS may name a folder with the source of some (DIR/puma); Debian has none of bigdecimal and of
# fiddle.
MATRIX_SOURCE_GEMS="bigdecimal: nio4r:ruby-nio4r puma:puma sqlite3:ruby-sqlite3 fiddle:"
# Others, which unit and boundary tests hardly need.
MATRIX_SOURCE_WITHOUT="nokogiri pg websocket-driver"
# Gems that were part of Ruby until 3.4 or 4.0: files of Debian's Ruby 3.3.
MATRIX_SOURCE_FORMER="drb logger mutex_m benchmark ostruct irb reline rdoc pstore"

# Ends with a sentence unless the folder is a checkout of Ruby's source.
matrix_source_check() {
  local file
  for file in include/ruby/version.h configure.ac gems/bundled_gems; do
    [ -e "$1/$file" ] ||
      fail "'$1' is no checkout of Ruby's source; make one with: git clone --branch v4.0.5 https://github.com/ruby/ruby"
  done
}

# Prints 4.0.5, or 4.1.0dev.
matrix_source_version() {
  local header=$1/include/ruby/version.h
  awk '/define RUBY_API_VERSION_MAJOR/ { major = $3 } /define RUBY_API_VERSION_MINOR/ { minor = $3 }
       /define RUBY_VERSION_TEENY/ { teeny = $3 } /define RUBY_PATCHLEVEL / { patch = $3 }
       END { printf "%s.%s.%s%s\n", major, minor, teeny, patch < 0 ? "dev" : "" }' "$header" "$1/version.h"
}

# Prints the commit of an unchanged checkout, otherwise a digest of all files.
matrix_source_revision() {
  if [ -e "$1/.git" ] && [ -z "$(git -C "$1" status --porcelain)" ]; then
    git -C "$1" rev-parse --short=10 HEAD
  else
    tar --create --directory="$1" --exclude=./.git --sort=name --mtime=@0 --owner=0 --group=0 . | sha256sum |
      cut -c 1-10
  fi
}

# Gems with C code for a packaged Ruby that is newer than its suite's default: Debian has built none of them for it.
MATRIX_NEWEST_GEMS="json:ruby-json mini_portile2:ruby-mini-portile2 nio4r:ruby-nio4r puma:puma sqlite3:ruby-sqlite3
  websocket-driver:ruby-websocket-driver pg:ruby-pg nokogiri:ruby-nokogiri"
MATRIX_NEWEST_PACKAGES="libsqlite3-dev libpq-dev libxml2-dev libxslt1-dev"

# Builds them from CHATON_MATRIX_GEMS or Debian's sources, unless they are there.
matrix_newest_gems() {
  local root=$1 gem package missing=
  matrix_prefix=/var/lib/gems
  : >"$root.gems.log"
  for gem in $MATRIX_NEWEST_GEMS; do
    # A mirror without sources is asked only once.
    package=${gem#*:}
    [ -z "$missing" ] || package=
    matrix_source_gem "$root" "${gem%%:*}" "$package" || missing="$missing ${gem%%:*}"
  done
  [ -n "$missing" ] || return 0
  # Sidekiq 8 needs a newer json than Ruby 3.4 has.
  [[ $missing != *json* ]] || missing="$missing sidekiq"
  matrix_env+=("CHATON_TEST_WITHOUT=$missing")
  say "without these gems, whose tests are skipped:$missing (the output is in $root.gems.log)"
}

# The rest of bin/matrix runs in this Ruby: sets the variables of matrix.sh.
# shellcheck disable=SC2034
matrix_source_use() {
  local source=$1 version series
  matrix_source_check "$source"
  version=$(matrix_source_version "$source")
  series=$(echo "$version" | cut -d . -f 1,2)
  lane=ruby-$series
  MATRIX_LANES="$MATRIX_LANES $lane"
  MATRIX_PACKAGES="$MATRIX_PACKAGES $MATRIX_SOURCE_PACKAGES"
  MATRIX_CHECKOUT=/srv/$lane
  MATRIX_TARGET=/var/tmp/$lane-target
  matrix_prefix=/opt/ruby-$version-$(matrix_source_revision "$source")
}

# Builds the Ruby and its gems unless a complete one is there.
matrix_source_build() {
  local source=$1 root=$2 gem missing=$MATRIX_SOURCE_WITHOUT
  if [ ! -e "$root$matrix_prefix/.complete" ]; then
    say "building $(basename "$matrix_prefix") (once; 10 minutes of two processors)"
    matrix_source_unpack "$source" "$root"
    matrix_source_compile "$root" || fail "Ruby could not be built; the output is in $root.log"
    matrix_source_former "$root"
    touch "$root$matrix_prefix/.complete"
    rm -rf --one-file-system "$root/usr/src/ruby"
  fi
  matrix_source_paths "$root"
  : >"$root.gems.log"
  for gem in $MATRIX_SOURCE_GEMS; do
    matrix_source_gem "$root" "${gem%%:*}" "${gem#*:}" || missing="$missing ${gem%%:*}"
  done
  matrix_env+=("CHATON_TEST_WITHOUT=$missing")
  say "without these gems, whose tests are skipped: $missing (the output is in $root.gems.log)"
}

matrix_source_unpack() {
  rm -rf --one-file-system "$2/usr/src/ruby"
  mkdir -p "$2/usr/src/ruby"
  tar --create --directory="$1" --exclude=./.git . | tar --extract --directory="$2/usr/src/ruby"
  # They would be downloaded.
  : >"$2/usr/src/ruby/gems/bundled_gems"
  rm -rf "$2/usr/src/ruby/ext/-test-"
}

# Whether the Ruby is a coming one, in which tests may fail.
matrix_source_coming() { [[ $matrix_prefix == *dev-* ]]; }

# A released Ruby is built with YJIT. That of a coming one may need a newer rustc.
matrix_source_compile() {
  local yjit=--enable-yjit
  ! matrix_source_coming || yjit=--disable-yjit
  # shellcheck disable=SC2016 # expanded inside
  matrix_inside "$1" sh -c 'cd /usr/src/ruby && ./autogen.sh &&
    ./configure --prefix="$0" --enable-shared --disable-install-doc --disable-dtrace --disable-zjit "$1" \
      --with-baseruby=/usr/bin/ruby3.3 && nice make -j"$(nproc)" main && make install-nodoc' "$matrix_prefix" "$yjit" \
    >"$1.log" 2>&1
}

# Without their specifications the gems that need them are not found.
matrix_source_former() {
  # shellcheck disable=SC2016 # expanded inside
  matrix_inside "$1" env "names=$MATRIX_SOURCE_FORMER" sh -c 'set -e
    site=$("$0/bin/ruby" -e "print RbConfig::CONFIG[%q(sitelibdir)]")
    specs=$("$0/bin/ruby" -e "print Gem.default_specifications_dir")
    for name in $names; do
      cp -r /usr/lib/ruby/3.3.0/$name* "$site/"
      cp /usr/lib/ruby/gems/3.3.0/specifications/default/$name-*.gemspec "$specs/"
    done' "$matrix_prefix"
}

# Commands of gems begin with the path of Debian's Ruby. A Ruby without YJIT ignores the variable.
matrix_source_paths() {
  local gems command
  gems=$(matrix_inside "$1" "$matrix_prefix/bin/ruby" -e 'print Gem.default_dir')
  matrix_env=("PATH=$matrix_prefix/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    "GEM_PATH=$gems:/usr/share/rubygems-integration/all" RUBY_YJIT_ENABLE=1)
  # The tests shall show what a coming Ruby breaks, so nothing is switched off in it.
  ! matrix_source_coming || matrix_env+=(CHATON_UNTRIED_RUBY=1)
  for command in rake yard sidekiq rackup spring; do
    printf '#!%s/bin/ruby\nload Gem.bin_path("%s", "%s")\n' "$matrix_prefix" $command $command \
      >"$1$matrix_prefix/bin/$command"
    chmod +x "$1$matrix_prefix/bin/$command"
  done
}

# Builds a gem and installs it. One that failed is tried again in the next run.
matrix_source_gem() {
  local root=$1 name=$2 package=$3 done=$1$matrix_prefix/.gem-$2 folder=/usr/src/gems/$2
  [ ! -e "$done" ] || return 0
  say "building the gem $name"
  rm -rf --one-file-system "$root$folder"
  mkdir -p "$root$folder"
  if [ -n "${CHATON_MATRIX_GEMS:-}" ] && [ -d "$CHATON_MATRIX_GEMS/$name" ]; then
    tar --create --directory="$CHATON_MATRIX_GEMS/$name" --exclude=./.git . | tar --extract --directory="$root$folder"
  elif [ -z "$package" ]; then
    return 1
  else
    echo "deb-src $(matrix_mirror) sid main" >"$root/etc/apt/sources.list.d/sources.list"
    # shellcheck disable=SC2016 # expanded inside
    matrix_inside "$root" sh -c 'cd "$0"; apt-get source -qq "$1" ||
      { '"$MATRIX_UPDATE"' && apt-get source -qq "$1"; }' "$folder" "$package" >>"$root.gems.log" 2>&1 || return
  fi
  # The lists of files of some gems come from git; some want to be signed by their authors. Without the two folders, which
  # are the usual ones, gem forgets GEM_PATH, where some find what they are built with.
  # shellcheck disable=SC2016
  matrix_inside "$root" env "${matrix_env[@]}" sh -c 'set -e
    cd "$1"
    cd "$(dirname "$(find . -name "$0.gemspec" | head -n 1)")"
    sed -i "/signing_key\|cert_chain/d" "$0.gemspec"
    # The generator of racc includes it; only its runtime is used.
    [ "$0" != racc ] || touch lib/racc/parser-text.rb
    rm -rf .git && git init -q && git add -A
    gem build -q "$0.gemspec"
    gem install --local --ignore-dependencies --no-document --install-dir "$(gem env gemdir)" \
      --bindir "$(ruby -e "print Gem.bindir")" "$0"-*.gem -- --enable-system-libraries' \
    "$name" "$folder" >>"$root.gems.log" 2>&1 && touch "$done"
}
