#!/bin/sh
# Builds the container image, or checks it.
#
#   sh packaging/image.sh build   millstream:VERSION and millstream:latest
#   sh packaging/image.sh check   builds it, starts it, asks it and ends it; without an engine, the Dockerfile alone
#
# The engine is $ENGINE, or docker, or podman: the first that answers.
set -eu
cd "$(dirname "$0")/.."

engine=
for candidate in ${ENGINE:-docker podman}; do
    if command -v "$candidate" >/dev/null 2>&1 && "$candidate" info >/dev/null 2>&1; then
        engine=$candidate
        break
    fi
done
file=packaging/Dockerfile
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)

fail() {
    echo "image: $*" >&2
    exit 1
}

build() {
    commit=$(git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || true)
    date=$(git show --no-patch --date=format:%Y-%m-%d --format=%cd HEAD 2>/dev/null || true)
    "$engine" build -f "$file" --build-arg "BUILD_COMMIT=$commit" --build-arg "BUILD_DATE=$date" -t "millstream:$version" -t millstream:latest .
}

# Statements of the Dockerfile about the sources, which changes there would make wrong.
check_file() {
    channel=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)
    grep -q "^FROM rust:$channel-slim-bookworm AS build$" "$file" || fail "$file does not build with Rust $channel"
    grep -q "^ENV RUSTUP_TOOLCHAIN=$channel$" "$file" || fail "$file names another toolchain than $channel"
    for path in Cargo.toml Cargo.lock build.rs rust-toolchain.toml src proto-impl benches tests; do
        [ -e "$path" ] || fail "there is no $path to be copied"
        ! grep -qx "$path" .dockerignore || fail ".dockerignore leaves out $path, which the build needs"
    done
    for path in target millstream-home .git; do
        grep -qx "$path" .dockerignore || fail ".dockerignore lets in $path"
    done
    for port in 5080 5443 1935 8443 5554 5555 4200/udp 50000/udp 50000; do
        grep "^EXPOSE " "$file" | grep -qw "$port" || fail "$file does not expose $port"
    done
    binary=$(sed -n 's/^ENTRYPOINT \["\([^"]*\)".*/\1/p' "$file")
    grep -q "^COPY --from=build /src/target/release/millstream $binary$" "$file" || fail "the entry point is not what is copied"
    home=$(sed -n 's/^ENTRYPOINT .*"--home", "\([^"]*\)"\]$/\1/p' "$file")
    grep -q "^VOLUME $home$" "$file" || fail "the home is not the volume"
    user=$(sed -n 's/^USER \([0-9]*\)$/\1/p' "$file")
    grep -q "useradd .*--uid ${user:-none} .* millstream$" "$file" || fail "it would run as root, or as nobody that it makes"
    grep -q "rest/v2/liveness" "$file" || fail "it has no health check"
}

# The image as it is used: started, asked, ended.
check_image() {
    build
    container=$("$engine" run -d "millstream:$version")
    trap '"$engine" rm -f "$container" >/dev/null' EXIT
    tries=0
    until "$engine" logs "$container" 2>/dev/null | grep -q '"event":"ready"'; do
        tries=$((tries + 1))
        [ "$tries" -lt 60 ] || fail "no ready line: $("$engine" logs "$container" 2>&1 | tail -n 20)"
        sleep 1
    done
    [ "$("$engine" exec "$container" id -un)" = millstream ] || fail "it runs as another user"
    "$engine" exec "$container" curl --fail --silent --output /dev/null http://127.0.0.1:5080/rest/v2/liveness || fail "it does not say that it lives"
    "$engine" stop --time 15 "$container" >/dev/null
    code=$("$engine" inspect -f '{{.State.ExitCode}}' "$container")
    [ "$code" = 0 ] || fail "SIGTERM ended it with $code"
}

case ${1:-} in
build)
    [ -n "$engine" ] || fail "there is no engine that answers: tried ${ENGINE:-docker, podman}"
    build
    ;;
check)
    check_file
    if [ -n "$engine" ]; then
        check_image
        echo "image: $file fits the sources; the image was built by $engine, started and ended"
    else
        echo "image: $file fits the sources. NOT CHECKED: that it builds, starts and ends; no engine answers (tried ${ENGINE:-docker, podman})"
    fi
    ;;
*)
    fail "usage: image.sh build|check"
    ;;
esac
