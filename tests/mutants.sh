#!/bin/sh
# Small mistakes are put into the code, one after the other; some test must fail at each (docs/testing.md).
#
#     tests/mutants.sh                          every file of .cargo/mutants.toml
#     tests/mutants.sh src/hub/ring.rs          one of them, or any other file of the server or of proto-impl/srt
#
# Each room is judged by its own tests: what another room's tests happen to notice is not said anywhere. What was found is below
# target/mutants/<room>/mutants.out: missed.txt has one line for each mistake that no test noticed.
set -eu
cd "$(dirname "$0")/.."
command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants@27.1.0

# A few lives of each random model tell a mistake from none; the suite runs more of them.
export MILLSTREAM_SEEDS="${MILLSTREAM_SEEDS:-40}"
export CARGO_TARGET_DIR="$PWD/target/mutants"

status=0

# room PACKAGE FOLDER TESTS...: the mistakes in files of one room.
room() {
	name=$1 package=$2 folder=$3
	shift 3
	files=$(for file in $chosen; do case $file in "$folder"*) printf ' --file %s' "$file" ;; esac done)
	[ -n "$files" ] || return 0
	mkdir -p "$CARGO_TARGET_DIR/$name"
	# shellcheck disable=SC2086
	cargo mutants --package "$package" --output "$CARGO_TARGET_DIR/$name" $files "$@" || status=$?
}

chosen=${*:-$(sed -n '/^examine_globs/,/^]/s/^ *"\(.*\)",$/\1/p' .cargo/mutants.toml)}

room hub millstream src/hub/ --cargo-arg=--lib -- -- hub::
room http millstream src/http/ --cargo-arg=--lib -- -- http::
room control millstream src/control/ --cargo-arg=--lib -- -- control::
room worker millstream src/worker/ --cargo-arg=--lib -- -- worker::
room srt srt proto-impl/srt/ --cargo-arg=--lib --cargo-arg=--tests
exit "$status"
