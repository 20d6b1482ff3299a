#!/bin/sh
# Runs after the files have gone. Only a purge (Debian) takes the home with it; rpm never does.
set -e

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
if [ "${1:-}" = purge ]; then
    rm -rf /var/lib/millstream
    if getent passwd millstream >/dev/null; then
        userdel millstream || true
    fi
    if getent group millstream >/dev/null; then
        groupdel millstream || true
    fi
fi
