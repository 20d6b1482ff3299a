#!/bin/sh
# Writes the licences of all crates that are linked into the binary, with their texts, by cargo-about.
#
#   sh packaging/licenses.sh FILE
set -eu
cd "$(dirname "$0")/.."

version=0.9.3
about=target/tools/cargo-about-$version/bin/cargo-about
if [ ! -x "$about" ]; then
    cargo install --locked --quiet --root "target/tools/cargo-about-$version" --features cli "cargo-about@$version"
fi
mkdir -p "$(dirname "$1")"
# The texts are those in the crates themselves: no service is asked for them.
cargo fetch --locked --quiet
"$about" generate --offline --locked --fail --config packaging/about.toml --output-file "$1.part" packaging/about.hbs
mv "$1.part" "$1"
