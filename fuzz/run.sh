#!/bin/sh
# Builds one target with coverage instrumentation and runs it: run.sh TARGET SECONDS [libFuzzer options]
# New inputs go to fuzz/artifacts/TARGET/corpus, failures beside them; the committed corpus is only read.
# ASAN=1 adds AddressSanitizer. Works with the pinned stable toolchain.
set -eu
cd "$(dirname "$0")"
[ $# -ge 2 ] || { echo "usage: run.sh TARGET SECONDS [libFuzzer options]"; ls fuzz_targets | sed 's/\.rs$//'; exit 2; }
target=$1 seconds=$2
shift 2
host=$(rustc -vV | sed -n 's/^host: //p')
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Cdebug-assertions -Coverflow-checks"
memory=256
if [ "${ASAN:-0}" = 1 ]; then
    # The sanitizer is an unstable option; its shadow needs room.
    export RUSTC_BOOTSTRAP=1
    flags="$flags -Zsanitizer=address"
    memory=1024
fi
# Instrumented builds share nothing with the server's: a folder of their own keeps both.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}"
# An explicit target keeps the instrumentation out of build scripts and macros.
RUSTFLAGS="$flags" cargo build --profile fuzzing --quiet --features libfuzzer --target "$host" --bin "$target"
mkdir -p "artifacts/$target/corpus"
# Inputs that are named are run or minimised alone; without any, the corpora are explored.
inputs="artifacts/$target/corpus corpus/$target"
for option in "$@"; do
    [ -f "$option" ] && inputs=
done
# shellcheck disable=SC2086
exec "$CARGO_TARGET_DIR/$host/fuzzing/$target" -max_total_time="$seconds" -rss_limit_mb="$memory" -timeout=1 \
    -artifact_prefix="artifacts/$target/" -print_final_stats=1 "$@" $inputs
