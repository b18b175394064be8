# Messages of the commands in bin/, which source this file.
say() { printf '%s: %s\n' "$(basename "$0")" "$*"; }
fail() { say "$*" >&2; exit 1; }
