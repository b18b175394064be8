# Makes $folder/data, the data of a new PostgreSQL server, by the programs in $bin. It is read by sh as the server's
# user, who may not see this file. initdb takes half a second of processor time: what it has made is kept for the other
# servers, and appears as a whole.
[ -d "$folder/data" ] || {
  kept=/tmp/chaton-postgres-$(id -u)-$("$bin/postgres" --version | tr -dc 0-9.)
  [ -f "$kept/PG_VERSION" ] || {
    rm -rf "$kept"
    fresh=$(mktemp -d "$kept.XXXXXX")
    "$bin/initdb" -D "$fresh/data" -A trust -U postgres --no-sync -E UTF8 --no-locale && mv -T "$fresh/data" "$kept"
    rm -rf "$fresh"
  }
  cp -a "$kept" "$folder/data"
}
