#!/bin/sh
# Makes the release archive: target/dist/millstream-VERSION-HOST.tar.gz, and beside it its SHA-256, and the symbols of the
# binary, which debuggers and profilers find by its link.
#
#   sh packaging/dist.sh [BINARY [FOLDER]]
#
# BINARY is built unless it is given. The same sources and the same binary give the same archive, to the byte. CRATE_LICENSES names
# a file with the licences of the crates (packaging/licenses.sh), which goes into the archive.
set -eu
cd "$(dirname "$0")/.."

binary=${1:-}
folder=${2:-target/dist}
if [ -z "$binary" ]; then
    cargo build --release --locked --bin millstream
    binary=${CARGO_TARGET_DIR:-target}/release/millstream
fi

version=$(cargo pkgid --locked --package millstream)
version=${version##*[@#]}
host=$(rustc -vV | sed -n 's/^host: //p')
name=millstream-$version-$host

mkdir -p "$folder"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/$name/licenses" "$stage/$name/packaging"
strip -o "$stage/$name/millstream" "$binary"
objcopy --only-keep-debug --compress-debug-sections "$binary" "$folder/$name.debug"
objcopy --add-gnu-debuglink="$folder/$name.debug" "$stage/$name/millstream"
cp README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$stage/$name/"
cp packaging/millstream.service "$stage/$name/packaging/"
cp -R packaging/linux packaging/certificates packaging/prometheus packaging/grafana packaging/helm packaging/front packaging/ladder "$stage/$name/packaging/"
cp -R docs "$stage/$name/"
# Libraries of the pages and of codecs are part of the binary, and their licences come with it.
cp src/protocol/http/pages/vendor/*.LICENSE packaging/licenses/* "$stage/$name/licenses/"
if [ -n "${CRATE_LICENSES:-}" ]; then
    cp "$CRATE_LICENSES" "$stage/$name/licenses/crates.txt"
fi
chmod -R u=rwX,go=rX "$stage/$name"
chmod 755 "$stage/$name/millstream" "$stage/$name/packaging/certificates/deploy.sh" "$stage/$name/packaging/ladder/ladder.sh"

# The time of the newest commit, where there is one: files of an archive need some time.
time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" -cf - "$name" | gzip -9n > "$folder/$name.tar.gz"
(cd "$folder" && sha256sum "$name.tar.gz" > "$name.tar.gz.sha256")
echo "$folder/$name.tar.gz"
