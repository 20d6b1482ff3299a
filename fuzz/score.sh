#!/bin/sh
# Runs targets one after the other, and adds what they did to the scoreboard of docs/fuzzing.md: score.sh SECONDS [TARGET...]
# The corpora that were gathered before (fuzz/artifacts) are gone on from. Nothing else should run meanwhile: executions a second are of
# one core.
set -eu
cd "$(dirname "$0")"
[ $# -ge 1 ] || { echo "usage: score.sh SECONDS [TARGET...]"; exit 2; }
seconds=$1
shift
page=../docs/fuzzing.md
log=$(mktemp)
trap 'rm -f "$log" "$log.page"' EXIT
[ $# -gt 0 ] || set -- $(ls fuzz_targets | sed 's/\.rs$//')
for target in "$@"; do
    failures() { find "artifacts/$target" -maxdepth 1 -type f 2> /dev/null | wc -l; }
    before=$(failures)
    sh run.sh "$target" "$seconds" > "$log" 2>&1 || echo "$target: see fuzz/artifacts/$target"
    found=$(($(failures) - before))
    executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
    # A run that ended with a failure has no figures at its end; its last line of progress has.
    [ -n "$executed" ] || executed=$(sed -n 's/^#\([0-9]*\).*/\1/p' "$log" | tail -1)
    [ "$found" -eq 0 ] || rate=-
    edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
    inputs=$(sed -n 's|.* corp: \([0-9]*\)/.*|\1|p' "$log" | tail -1)
    [ -n "$executed" ] || { cat "$log" >&2; exit 1; }
    awk -v target="$target" -v executed="$executed" -v rate="${rate:--}" -v edges="${edges:-0}" -v inputs="${inputs:-0}" \
        -v found="$found" -v day="$(date +%F)" '
        function row(former, findings) {
            printf "| `%s` | %.0f | %d | %d | %s | %d | %s |\n", target, former + executed, inputs, edges, rate, findings + found, day
            is_written = 1
        }
        /^## / { is_board = /^## Scoreboard/ }
        # Rows are in the order of their names.
        is_board && /^\| `/ {
            split($0, cell, / *\| */)
            name = cell[2]
            gsub(/`/, "", name)
            if (name == target) { row(cell[3], cell[7]); next }
            if (!is_written && name > target) row(0, 0)
            is_inside = 1
        }
        is_board && is_inside && !/^\|/ && !is_written { row(0, 0) }
        is_board && /^\|---/ && !is_written { print; is_inside = 1; next }
        { print }
        END { if (!is_written) exit 1 }' "$page" > "$log.page"
    cat "$log.page" > "$page"
    grep "^| \`$target\` .*$(date +%F) |" "$page"
done
