#!/bin/sh
# Runs before the files go. An upgrade leaves the server running: dpkg says `upgrade`, rpm 1.
set -e

case ${1:-} in
remove | 0)
    if [ -d /run/systemd/system ]; then
        systemctl disable --now millstream.service || true
    fi
    ;;
esac
