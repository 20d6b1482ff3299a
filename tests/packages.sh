#!/bin/sh
# Makes the packages of all crates as a registry would get them, without network, and uses them as somebody else would: programs outside
# of the workspace depend on them by name and version, and are built and run. Nothing is published.
#
#   sh tests/packages.sh            the packages: target/package/*.crate; the project: target/outside
set -eu
cd "$(dirname "$0")/.."

# Siblings that no registry has are resolved among the packages themselves. The manifests name no address of the repository.
rm -f target/package/*.crate
cargo package --workspace --exclude millstream --exclude millstream-fuzz --offline --locked --allow-dirty --no-verify --no-metadata --quiet

outside=target/outside
rm -rf "$outside"
mkdir -p "$outside/packages" "$outside/all/src"
for file in target/package/*.crate; do
    tar -xzf "$file" -C "$outside/packages"
done

# A program that has every package, and those of tests/outside, each with a single one.
{
    printf '[package]\nname = "outside-all"\nversion = "0.1.0"\nedition = "2024"\n\n[dependencies]\n'
    for folder in "$outside"/packages/*; do
        package=$(basename "$folder")
        for part in README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE src/lib.rs; do
            [ -f "$folder/$part" ] || { echo "$package has no $part" >&2; exit 1; }
        done
        printf '%s = "=%s"\n' "${package%-*}" "${package##*-}"
    done
} >"$outside/all/Cargo.toml"
printf '//! A program that links every package.\nfn main() {}\n' >"$outside/all/src/main.rs"
members='"all"'
for program in tests/outside/*/; do
    name=$(basename "$program")
    cp -R "$program" "$outside/$name"
    sed 's|, path = "[^"]*"|, version = "0.1"|' "$program/Cargo.toml" >"$outside/$name/Cargo.toml"
    ! grep -q 'path = ' "$outside/$name/Cargo.toml" || { echo "$name still names a path" >&2; exit 1; }
    members="$members, \"$name\""
done
{
    printf '[workspace]\nmembers = [%s]\nresolver = "3"\n\n[patch.crates-io]\n' "$members"
    for folder in "$outside"/packages/*; do
        package=$(basename "$folder")
        printf '%s = { path = "packages/%s" }\n' "${package%-*}" "$package"
    done
    # The server's, so that other people's crates are not built again.
    sed -n '/^\[profile.dev/,/^\[profile.release/{/^\[profile.release/!p}' Cargo.toml
} >"$outside/Cargo.toml"
# The versions that are here already.
cp Cargo.lock "$outside/Cargo.lock"

cd "$outside"
CARGO_TARGET_DIR=..
export CARGO_TARGET_DIR
cargo build --quiet --offline --workspace
for program in ../../tests/outside/*/; do
    cargo run --quiet --offline -p "outside-$(basename "$program")"
done
echo "$(find packages -mindepth 1 -maxdepth 1 | wc -l) packages are complete, build, and run in $(find ../../tests/outside -mindepth 2 -maxdepth 2 -name Cargo.toml | wc -l) programs"
