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
	cargo mutants --config "$config" --package "$package" --output "$CARGO_TARGET_DIR/$name" $files "$@"
}

# The list of the configuration would be taken besides what is asked for.
config=$CARGO_TARGET_DIR/mutants.toml
mkdir -p "$CARGO_TARGET_DIR"
sed '/^examine_globs/,/^]/d' .cargo/mutants.toml >"$config"
chosen=${*:-$(sed -n '/^examine_globs/,/^]/s/^ *"\(.*\)",$/\1/p' .cargo/mutants.toml)}

# A few lives of the random model of a stream tell a mistake from none; `make unit` runs more of them.
(export MILLSTREAM_SEEDS=40 && room hub millstream src/hub/ --cargo-arg=--lib -- -- hub::) || status=$?
room http millstream-http1 proto-impl/http1/ --cargo-arg=--lib || status=$?
room control millstream src/control/ --cargo-arg=--lib -- -- control:: || status=$?
room worker millstream src/worker/ --cargo-arg=--lib -- -- worker:: || status=$?
room srt millstream-srt proto-impl/srt/ --cargo-arg=--lib --cargo-arg=--tests || status=$?
exit "$status"
