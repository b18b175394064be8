# How the commands of bin/ talk. Sourced by them.
say() { printf '%s: %s\n' "$(basename "$0")" "$*"; }
fail() { say "$*" >&2; exit 1; }
