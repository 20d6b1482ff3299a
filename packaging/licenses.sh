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
# The texts are those in the crates themselves: nothing is asked of anybody.
"$about" about generate --offline --locked --fail --config packaging/about.toml --output-file "$1" packaging/about.hbs 2>/dev/null \
    || "$about" generate --offline --locked --fail --config packaging/about.toml --output-file "$1" packaging/about.hbs
