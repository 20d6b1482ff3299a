#!/bin/sh
# BoringSSL's test runner ("BoGo") against our DTLS: bogo.sh FOLDER, which has BoringSSL's sources. Needs Go. FOLDER is only read.
# Says how many tests passed, failed, and were ended by the shim as not there; fails if one failed.
set -eu
cd "$(dirname "$0")/.."
[ $# -eq 1 ] && [ -d "$1/ssl/test/runner" ] || { echo "usage: bogo.sh FOLDER (a checkout of BoringSSL)"; exit 2; }
root=$PWD
runner=$root/target/bogo-runner
log=$root/target/bogo.log
cargo build --quiet --locked -p millstream-dtls --example bogo_shim
cd "$1/ssl/test/runner"
go test -c -o "$runner" .
# The runner fails as a whole when a test does.
"$runner" -test.run TestAll -shim-path "$root/target/debug/examples/bogo_shim" -shim-config "$root/proto-impl/dtls/bogo.json" \
    -allow-unimplemented -test '*DTLS*' -num-workers "${WORKERS:-2}" -pipe > "$log" 2>&1 || { grep -B 2 -A 20 '^FAILED' "$log" | head -100; exit 1; }
awk '{ count[$1]++ } END { printf "%d passed, %d failed, %d not there\n", count["PASSED"], count["FAILED"], count["UNIMPLEMENTED"] }' "$log"
