# The parts of bin/check-memory, which sources this file. Each check_memory_PART first checks its tools and then runs
# cargo or Ruby, whose output is shown and counted.

CHECK_MEMORY_PARTS=(loom thread address miri valgrind)
CHECK_MEMORY_PAGE=docs/MEMORY_CHECKS.md
CHECK_MEMORY_TARGET=${CARGO_TARGET_DIR:-$PWD/target}/check-memory
CHECK_MEMORY_HOST=$(rustc -vV | sed -n 's/^host: //p')
# The tests of unsafe code, which makes system calls that miri does not know, and the tests that make none.
CHECK_MEMORY_SYSTEM_CALLS=(file_lock:: process:: shared_mapping:: thread_probe::)
CHECK_MEMORY_NO_SYSTEM_CALLS=(backoff:: events:: idle_wait:: policy:: quantum:: queue:: work::)

# Runs a part, shows its output and writes its result into the page. A failing command does not end a part by itself,
# because bin/check-memory goes on with the next one.
check_memory_run() {
  local part=$1 log status=0 result
  log=$(mktemp)
  say "$part"
  ("check_memory_$part") 2>&1 | tee "$log" || status=$?
  result=$(check_memory_count "$log")
  if [ $status = 0 ] && [ "$result" != "0 tests" ]; then
    say "$part: ok, $result"
    check_memory_record "$part" "ok, $result"
  else
    status=1
    say "$part: failed"
    check_memory_record "$part" failed
  fi
  rm -f "$log"
  return $status
}

# How many tests ended well: lines of cargo and of minitest.
check_memory_count() {
  awk '/^test result: / { tests += $4 } /^[0-9]+ runs, / { tests += $1 } END { print tests + 0 " tests" }' "$1"
}

# Writes result, date and commit into the row of the part.
check_memory_record() {
  local commit
  commit=$(git describe --always --abbrev=7)
  [ -z "$(git status --porcelain -- crates ext lib test)" ] || commit+=" and changes"
  awk -F ' [|] ' -v OFS=' | ' -v part="| $1" -v result="$2" -v date="$(date +%F)" -v commit="$commit" '
    $1 == part { print $1, $2, result, date, commit " |"; next }
    { print }' $CHECK_MEMORY_PAGE >$CHECK_MEMORY_PAGE.new
  mv $CHECK_MEMORY_PAGE.new $CHECK_MEMORY_PAGE
}

check_memory_loom() {
  RUSTFLAGS="--cfg loom --cfg crossbeam_loom" cargo test --locked --quiet --lib models:: \
    --manifest-path crates/core/loom/Cargo.toml --target-dir "$CHECK_MEMORY_TARGET/loom"
}

# The standard library is compiled anew: ThreadSanitizer knows nothing of the locks in one that was compiled without
# it, and reports what they protect. It learns of mappings from libc, which rustix would bypass: a lock in new memory at
# the address of old memory looks like a race then.
check_memory_thread() {
  check_memory_runtime ThreadSanitizer tsan
  [ -d "$(rustc --print sysroot)/lib/rustlib/src/rust/library" ] ||
    fail "the source of Rust's standard library is missing. Run:  rustup component add rust-src"
  local cargo=(cargo test --locked --quiet -Zbuild-std --target "$CHECK_MEMORY_HOST"
    --target-dir "$CHECK_MEMORY_TARGET/thread" --lib)
  export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread --cfg=rustix_use_libc"
  "${cargo[@]}" -p chaton-core && "${cargo[@]}" -p chaton-jobs
}

# Ruby itself is compiled without it, so the runtime is loaded before Ruby. Ruby frees no memory at its exit, and looks
# for references on the stack, which therefore has to stay where it is. It gives threads signal stacks of its own, which
# the runtime would take for its own and unmap.
check_memory_address() {
  check_memory_runtime AddressSanitizer asan
  local runtime lib=$CHECK_MEMORY_TARGET/address/lib
  local options=detect_leaks=0:detect_stack_use_after_return=0:handle_segv=0:use_sigaltstack=0
  runtime=$(gcc -print-file-name=libasan.so 2>/dev/null) || true
  [ -e "$runtime" ] || fail "gcc's libasan.so is missing. Run:  apt-get install gcc"
  # The C libraries in it are compiled in the same way. While they are built, small programs are linked and run.
  RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address LIBCLANG_PATH=${LIBCLANG_PATH:-$(check_memory_libclang)} \
    CFLAGS="-g0 -fsanitize=address" LDFLAGS=-fsanitize=address ASAN_OPTIONS=detect_leaks=0 \
    cargo build --locked --quiet -p chaton-ext --target "$CHECK_MEMORY_HOST" \
    --target-dir "$CHECK_MEMORY_TARGET/address" &&
    mkdir -p "$lib/chaton" &&
    cp "$CHECK_MEMORY_TARGET/address/$CHECK_MEMORY_HOST/debug/libchaton_native.so" "$lib/chaton/chaton_native.so" &&
    LD_PRELOAD=$runtime ASAN_OPTIONS=$options \
    ruby -I "$lib" -Ilib -Itest -e 'ARGV.each { |file| require File.expand_path(file) }' test/boundary/*_test.rb
}

check_memory_miri() {
  cargo +nightly miri --version >/dev/null 2>&1 ||
    fail "miri is missing. Run:  rustup toolchain install nightly --component miri,rust-src"
  MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --locked --quiet -p chaton-core --lib \
    --target-dir "$CHECK_MEMORY_TARGET/miri" -- "${CHECK_MEMORY_NO_SYSTEM_CALLS[@]}"
}

check_memory_valgrind() {
  command -v valgrind >/dev/null || fail "valgrind is missing. Run:  apt-get install valgrind"
  local runner
  runner=CARGO_TARGET_$(tr a-z- A-Z_ <<<"$CHECK_MEMORY_HOST")_RUNNER
  # Valgrind hides the kernel's shared object, in which rustix would look up the clock without libc.
  env RUSTFLAGS=--cfg=rustix_use_libc "$runner=valgrind --quiet --error-exitcode=9" cargo test --locked --quiet -p chaton-core --lib \
    --target-dir "$CHECK_MEMORY_TARGET/valgrind" -- "${CHECK_MEMORY_SYSTEM_CALLS[@]}"
}

# Ends with a sentence when this Rust has no runtime of the sanitizer: Debian's packages leave them out.
check_memory_runtime() {
  compgen -G "$(rustc --print sysroot)/lib/rustlib/$CHECK_MEMORY_HOST/lib/librustc*_rt.$2.a" >/dev/null ||
    fail "this Rust ($(rustc --version)) comes without $1. Use the one of Rust's own installer, rustup"
}

check_memory_libclang() { ruby -r./ext/chaton/toolchain -e 'print Toolchain.libclang_path'; }
