#!/bin/sh
# Makes the packages for Debian and RPM systems out of the release archive, by nfpm: target/dist/millstream_VERSION-1_ARCH.deb and .rpm.
#
#   sh packaging/packages.sh [ARCHIVE [FOLDER [RELEASE]]]
#
# ARCHIVE is that of packaging/dist.sh for this machine. The same archive gives the same packages, to the byte.
set -eu
cd "$(dirname "$0")/.."

folder=${2:-target/dist}
RELEASE=${3:-1}
VERSION=$(cargo pkgid --locked --package millstream)
VERSION=${VERSION##*[@#]}
host=$(rustc -vV | sed -n 's/^host: //p')
archive=${1:-target/dist/millstream-$VERSION-$host.tar.gz}
case $host in
x86_64-*) ARCH=amd64 ;;
aarch64-*) ARCH=arm64 ;;
*)
    echo "packages: no name for $host is known" >&2
    exit 1
    ;;
esac

nfpm_version=v2.45.2
nfpm=target/tools/nfpm-$nfpm_version/nfpm
if [ ! -x "$nfpm" ]; then
    if ! command -v go >/dev/null 2>&1; then
        echo "packages: NOT MADE: nfpm $nfpm_version is missing, and there is no go to install it" >&2
        exit 1
    fi
    GOBIN="$PWD/target/tools/nfpm-$nfpm_version" go install "github.com/goreleaser/nfpm/v2/cmd/nfpm@$nfpm_version"
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
tar -xzf "$archive" -C "$stage"
from=$stage/$(basename "$archive" .tar.gz)
to=$stage/package
share=$to/usr/share/millstream
doc=$to/usr/share/doc/millstream
mkdir -p "$to/usr/bin" "$to/usr/lib/systemd/system" "$to/usr/lib/sysctl.d" "$share" "$doc"
install -m 755 "$from/millstream" "$to/usr/bin/millstream"
sed -e '/^# A unit for systemd/,/^$/d' -e 's|/usr/local/bin/|/usr/bin/|' "$from/packaging/millstream.service" \
    > "$to/usr/lib/systemd/system/millstream.service"
install -m 644 "$from/packaging/linux/sysctl.conf" "$to/usr/lib/sysctl.d/60-millstream.conf"
cp -R "$from/packaging/prometheus" "$from/packaging/grafana" "$from/packaging/front" "$from/packaging/certificates" "$share/"
for page in README CHANGELOG ARCHITECTURE CONTRIBUTING; do
    cp "$from/$page".md "$doc/"
done
cp -R "$from/docs" "$doc/"
cp -R "$from/licenses" "$from/LICENSE-APACHE" "$from/LICENSE-MIT" "$doc/"
# The place and form in which Debian looks for it.
cat > "$doc/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: millstream

Files: *
Copyright: The millstream authors
License: MIT or Apache-2.0
 As you choose: LICENSE-MIT in this folder, or on Debian systems
 /usr/share/common-licenses/Apache-2.0. Crates and libraries that are part of
 the program: licenses in this folder.
END
for file in postinst.sh prerm.sh postrm.sh default; do
    cp "$from/packaging/linux/$file" "$to/$file"
done
cp "$from/packaging/linux/logrotate.conf" "$to/logrotate"
# git keeps no dates; the archive's own are those of its commit.
time=$(stat -c %Y "$from/LICENSE-MIT")
find "$to" -exec touch -h -d "@$time" {} +
# The oldest C library that has all that the binary calls.
GLIBC=$(objdump -T "$to/usr/bin/millstream" | grep -o 'GLIBC_[0-9.]*' | sort -V | tail -n 1)
GLIBC=${GLIBC#GLIBC_}
export ARCH VERSION RELEASE GLIBC

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
nfpm=$PWD/$nfpm
config=$PWD/packaging/nfpm.yaml
for packager in deb rpm; do
    (cd "$to" && SOURCE_DATE_EPOCH=$time "$nfpm" package --config "$config" --packager "$packager" --target "$folder") >&2
done
(cd "$folder" && for package in millstream[_-]"$VERSION-$RELEASE"*.deb millstream-"$VERSION-$RELEASE"*.rpm; do
    sha256sum "$package" > "$package.sha256"
    echo "$folder/$package"
done)
