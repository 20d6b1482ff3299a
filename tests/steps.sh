#!/bin/sh
# Runs make targets one after the other, also behind one that fails, and says at the end which did.
#
#   sh tests/steps.sh TARGET...
set -u

failed=0
summary=
for step in "$@"; do
    began=$(date +%s)
    if ${MAKE:-make} --no-print-directory "$step"; then
        result=passed
    else
        result=FAILED
        failed=$((failed + 1))
    fi
    summary="$summary
$(printf '  %-12s %s  %5d s' "$step" "$result" $(($(date +%s) - began)))"
done
echo
echo "Summary of $#:$summary"
if [ "$failed" -gt 0 ]; then
    echo "$failed of $# failed"
    exit 1
fi
