#!/bin/sh
# The two providers of primitives (docs/crates.md): the crates with encryption build without C and pass their tests with the one in Rust,
# the providers agree with each other, and machines of the one talk to machines of the other over UDP.
#
#   sh tests/providers.sh
set -eu
cd "$(dirname "$0")/.."

CRATES="crypto srtp dtls srt hls ice turn webrtc"
RUST="--no-default-features --features rustcrypto"
packages=
for crate in $CRATES; do
    packages="$packages -p millstream-$crate"
done

# Packages that a C compiler or linked library is needed for.
needs_c() {
    cargo tree --locked -p "millstream-$1" --edges normal,build --prefix none ${2:-} | grep -E '^(cc|cmake|bindgen|aws-lc-.*|ring|[a-z0-9_-]+-sys) v' || true
}
for crate in $CRATES; do
    # The test of this test: the default provider needs one.
    [ -n "$(needs_c "$crate")" ] || { echo "$crate: the search for C finds nothing" >&2; exit 1; }
    found=$(needs_c "$crate" "$RUST")
    [ -z "$found" ] || { echo "$crate needs C without the default provider: $found" >&2; exit 1; }
done
for crate in rtmp rtsp sctp; do
    found=$(needs_c "$crate")
    [ -z "$found" ] || { echo "$crate needs C: $found" >&2; exit 1; }
done

# Without a provider the first error says so.
for crate in srtp dtls srt hls ice turn webrtc; do
    error=$(cargo check --locked --quiet -p "millstream-$crate" --no-default-features 2>&1 | grep -m 1 '^error') || true
    case $error in
    *"needs a provider of primitives"*) ;;
    *) echo "$crate without a provider: ${error:-no error}" >&2; exit 1 ;;
    esac
done

# With a compiler of C that fails. (The tests need one: the bench of srtp compares with aws-lc.)
CC=false CXX=false cargo build --locked --quiet $packages $RUST
cargo test --locked --quiet -p millstream-crypto --lib --features rustcrypto
cargo test --locked --quiet $packages $RUST --lib

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for provider in aws-lc rustcrypto; do
    cargo build --locked --quiet -p millstream-dtls --example peer --no-default-features --features $provider
    cargo build --locked --quiet -p millstream-srt --example live --no-default-features --features $provider
    mkdir "$work/$provider"
    cp target/debug/examples/peer target/debug/examples/live "$work/$provider/"
done
python3 tests/providers.py "$work"
