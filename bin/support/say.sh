# Messages of the commands in bin/, which source this file.
say() { printf '%s: %s\n' "$(basename "$0")" "$*"; }
fail() { say "$*" >&2; exit 1; }

# Prints the comment at the head of the command, and ends, when the first argument asks for help. The checkout must be
# the working directory.
help_if_asked() {
  case "${1:-}" in
    -h | --help | help) sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "bin/$(basename "$0")" && exit ;;
  esac
}
