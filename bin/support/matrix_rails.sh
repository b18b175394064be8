# shellcheck shell=bash
# The lanes of Rails that Debian does not have: gems of it and of what belongs to it are built from their repositories.
# Sourced by bin/matrix.

MATRIX_RAILS_LANES="8.1 main 8.0"
# What a new application, Rails' own tests and instruments need beside it.
MATRIX_RAILS_PACKAGES="bundler chromium-driver ruby-mail ruby-propshaft ruby-importmap-rails ruby-stimulus-rails
  ruby-jbuilder ruby-web-console ruby-selenium-webdriver ruby-action-text-trix ruby-websocket ruby-letter-opener
  ruby-rack-mini-profiler ruby-spring ruby-sequel tzdata-legacy libyaml-dev $MATRIX_NEWEST_PACKAGES"
# Gems with C code, which Debian has for another Ruby only, and gems that it does not have: name, repository, tag, in the
# order of their needs.
MATRIX_RAILS_GEMS="json:ruby/json:v2.21.1 bigdecimal:ruby/bigdecimal:v4.1.2 racc:ruby/racc:v1.8.1
  nio4r:socketry/nio4r:v2.7.4 puma:puma/puma:v8.0.2 sqlite3:sparklemotion/sqlite3-ruby:v2.9.6
  websocket-driver:faye/websocket-driver-ruby:0.8.0 nokogiri:sparklemotion/nokogiri:v1.19.4 pg:ged/ruby-pg:v1.6.3
  bindex:gsamokovarov/bindex:v0.8.1 msgpack:msgpack/msgpack-ruby:v1.8.3 bootsnap:Shopify/bootsnap:v1.18.6
  debug:ruby/debug:v1.11.1 turbo-rails:hotwired/turbo-rails:v2.0.21 solid_cache:rails/solid_cache:v1.0.10
  solid_cable:rails/solid_cable:v4.0.0 raabro:floraison/raabro:v1.4.0 et-orbi:floraison/et-orbi:v1.4.0
  fugit:floraison/fugit:v1.12.3 solid_queue:rails/solid_queue:v1.5.0 event_emitter:shokai/event_emitter:v0.2.6
  websocket-client-simple:ruby-jp/websocket-client-simple:v0.9.0 minitest-retry:y-yagi/minitest-retry:v0.3.1
  marcel:rails/marcel:v1.2.1"
# What the applications of `apps` need beside these: packages, gems, and the sources of the applications themselves. Their
# Rails is the branch main, of which Campfire uses methods that no release has.
MATRIX_RAILS_APPS_PACKAGES="ruby-rqrcode ruby-net-http-persistent ruby-redis-namespace ruby-mono-logger ruby-multi-json
  ruby-useragent"
MATRIX_RAILS_APPS_GEMS="bcrypt:bcrypt-ruby/bcrypt-ruby:v3.1.22 redis:redis/redis-rb:v5.4.1 kredis:rails/kredis:v1.8.0
  geared_pagination:basecamp/geared_pagination:v1.2.0 platform_agent:basecamp/platform_agent:v1.0.1
  rails_autolink:tenderlove/rails_autolink:v1.1.8 resque:resque/resque:v2.7.0"
MATRIX_RAILS_APPS="campfire:basecamp/once-campfire:v1.4.9"
# Instruments, which tests load from their source and benchmarks do without.
MATRIX_RAILS_INSTRUMENTS="sentry-ruby:getsentry/sentry-ruby:6.6.2 honeybadger:honeybadger-io/honeybadger-ruby:v6.9.0
  judoscale:judoscale/judoscale-ruby:v1.13.3 newrelic_rpm:newrelic/newrelic-ruby-agent:10.5.0
  appsignal:appsignal/appsignal-ruby:v4.10.1 skylight:skylightio/skylight-ruby:v7.1.1
  opentelemetry:open-telemetry/opentelemetry-ruby:main opentelemetry-contrib:open-telemetry/opentelemetry-ruby-contrib:main"
# Gems without C code that come with Debian's Ruby, for one that is built without them.
MATRIX_RAILS_BUNDLED="net-smtp net-imap net-pop matrix rexml"
# Files of Debian's gems that are only in the folder of its own Rubies.
MATRIX_RAILS_VENDORED="generators jbuilder jbuilder.rb letter_opener letter_opener.rb user_agent user_agent.rb useragent.rb"
# The folder of the lanes in the root directory.
MATRIX_RAILS=/srv/rails

# The versions that were asked for (one after `demo`, the newest after `bench`, main after `apps`), and their packages.
# What Debian has no package of comes from its repository, which is cloned once, to where CHATON_MATRIX_GEMS says.
matrix_rails_use() {
  local row newest=${MATRIX_RAILS_LANES%% *}
  matrix_rails_words="rails $*"
  matrix_rails_bench=()
  case "${1:-}" in
    demo) matrix_rails_bench=(rails) && set -- "${2:-$newest}" ;;
    bench) matrix_rails_bench=("${@:2}") && set -- "$newest" ;;
    apps) matrix_rails_apps_use "${@:2}" && set -- main ;;
  esac
  [ ${#matrix_rails_bench[@]} = 0 ] || { MATRIX_PACKAGES+=" wrk" && MATRIX_RAILS_INSTRUMENTS=; }
  matrix_rails_versions=("$@")
  [ $# -gt 0 ] || read -ra matrix_rails_versions <<<"$MATRIX_RAILS_LANES"
  MATRIX_PACKAGES+=" $MATRIX_RAILS_PACKAGES"
  export CHATON_MATRIX_GEMS=${CHATON_MATRIX_GEMS:-$(matrix_folder)/gems}
  mkdir -p "$CHATON_MATRIX_GEMS"
  for row in $MATRIX_RAILS_GEMS $MATRIX_RAILS_INSTRUMENTS $matrix_rails_app; do
    # shellcheck disable=SC2046 # three words
    matrix_rails_clone $(echo "$row" | tr : ' ')
  done
}

# The application that was named, and arguments of bin/bench.
matrix_rails_app=
matrix_rails_apps_use() {
  local row
  for row in $MATRIX_RAILS_APPS; do [ "${row%%:*}" != "${1:-}" ] || matrix_rails_app=$row; done
  [ -n "$matrix_rails_app" ] || fail "unknown application '${1:-}': use ${MATRIX_RAILS_APPS%%:*}"
  matrix_rails_bench=(apps --app "$@")
  MATRIX_RAILS_PACKAGES+=" $MATRIX_RAILS_APPS_PACKAGES"
  MATRIX_RAILS_GEMS+=" $MATRIX_RAILS_APPS_GEMS"
}

# Copies the source of the application.
matrix_rails_app_copy() {
  local root=$1 name=${matrix_rails_app%%:*} folder
  folder=$root$MATRIX_RAILS/apps/$name
  rm -rf --one-file-system "$folder"
  mkdir -p "$folder"
  git -C "$CHATON_MATRIX_GEMS/$name" archive HEAD | tar --extract --directory="$folder"
  echo "${matrix_rails_app##*:v}" >"$folder/VERSION"
}

# Clones a repository at a tag or branch into CHATON_MATRIX_GEMS/NAME, unless it is there.
matrix_rails_clone() {
  local name=$1 repository=https://github.com/$2 ref=$3 folder=$CHATON_MATRIX_GEMS/$1
  [ ! -e "$folder/.git" ] || return 0
  say "cloning $2 $ref"
  rm -rf "$folder"
  git clone --quiet --depth 1 --branch "$ref" -c advice.detachedHead=false "$repository" "$folder" 2>"$folder.log" ||
    fail "$repository could not be cloned: $(tail -n 1 "$folder.log")"
}

# Prints the newest release of a series, v8.1.3.1, or the branch main.
matrix_rails_ref() {
  local refs
  [ "$1" != main ] || { echo main; return; }
  refs=$(git ls-remote --tags --refs https://github.com/rails/rails "v$1.*") || return
  echo "$refs" | grep -oxE '.*refs/tags/v[0-9.]+' | sed 's|.*/||' | sort -V | tail -n 1
}

# Builds the gems that all versions of Rails share, and copies the instruments.
matrix_rails_gems() {
  local root=$1 row name
  for row in $MATRIX_RAILS_GEMS; do
    name=${row%%:*}
    matrix_source_gem "$root" "$name" "" || fail "the gem $name could not be built; the output is in $root.gems.log"
  done
  if [[ $matrix_prefix = /opt/* ]]; then
    # shellcheck disable=SC2016 # expanded inside
    matrix_inside "$root" env "names=$MATRIX_RAILS_BUNDLED" "files=$MATRIX_RAILS_VENDORED" "${matrix_env[@]}" sh -ec '
      cd /usr/lib/ruby/gems/3.4.0
      for name in $names; do cp -r --parents gems/$name-* specifications/$name-* "$(gem env gemdir)"; done
      cd /usr/lib/ruby/vendor_ruby
      cp -r $files "$(ruby -e "print RbConfig::CONFIG[%q(sitelibdir)]")"'
  fi
  for row in $MATRIX_RAILS_INSTRUMENTS; do
    name=${row%%:*}
    [ ! -e "$root$MATRIX_RAILS/instruments/$name" ] || continue
    mkdir -p "$root$MATRIX_RAILS/instruments/$name"
    git -C "$CHATON_MATRIX_GEMS/$name" archive HEAD | tar --extract --directory="$root$MATRIX_RAILS/instruments/$name"
  done
}

# Builds the gems of a version of Rails into a folder of their own, and prepares its source for Bundler.
matrix_rails_build() {
  local root=$1 version=$2 ref folder=$MATRIX_RAILS/$2
  [ ! -e "$root$folder/.complete" ] || return 0
  if [ ! -e "$CHATON_MATRIX_GEMS/rails-$version/.git" ]; then
    ref=$(matrix_rails_ref "$version") && [ -n "$ref" ] || fail "https://github.com/rails/rails has no release $version"
    matrix_rails_clone "rails-$version" rails/rails "$ref"
  fi
  say "building the gems of Rails $version"
  rm -rf --one-file-system "$root$folder"
  mkdir -p "$root$folder/source"
  git -C "$CHATON_MATRIX_GEMS/rails-$version" archive HEAD | tar --extract --directory="$root$folder/source"
  # shellcheck disable=SC2016 # expanded inside
  matrix_inside "$root" env "${matrix_env[@]}" sh -c 'set -e
    cd "$0/source"
    # Only asked for in a Ractor, and its releases are in no repository.
    sed -i /ractor-dispatch/d activesupport/activesupport.gemspec
    for gem in $(ls -d active* action* railties) rails; do
      (cd "$([ $gem = rails ] && echo . || echo $gem)" && gem build -q $gem.gemspec -o "$0/$gem.gem")
      gem install --local --ignore-dependencies --no-document --install-dir "$0/gems" "$0/$gem.gem"
    done' "$folder" >>"$root.gems.log" 2>&1 || fail "the gems of Rails could not be built; the output is in $root.gems.log"
  touch "$root$folder/.complete"
}

# Runs the tests of Rails, or benchmarks, with each version.
matrix_rails() {
  local root=$1 version ruby value env=() status=0
  matrix_rails_gems "$root"
  [ -z "$matrix_rails_app" ] || matrix_rails_app_copy "$root"
  # The gems of these lanes are all there, so no test is skipped.
  for value in "${matrix_env[@]}"; do [[ $value = CHATON_TEST_WITHOUT=* ]] || env+=("$value"); done
  ruby=$(matrix_run "$root" ruby -e 'print RUBY_VERSION[/\d+\.\d+/]')
  for version in "${matrix_rails_versions[@]}"; do
    matrix_rails_build "$root" "$version"
    matrix_env=("${env[@]}" "GEM_HOME=$MATRIX_RAILS/$version/gems" "CHATON_RAILS=$MATRIX_RAILS/$version/source"
      "CHATON_INSTRUMENTS=$MATRIX_RAILS/instruments" "CHATON_APPS=$MATRIX_RAILS/apps")
    if [ ${#matrix_rails_bench[@]} -gt 0 ]; then
      matrix_command="bin/matrix ${source:+--ruby-source $(basename "$source") }$matrix_rails_words"
      matrix_bench experimental "$root" "${matrix_rails_bench[@]}" || status=$?
    else
      matrix_test "rails-$version-ruby-$ruby" "$root" rails || status=$?
    fi
  done
  return $status
}
