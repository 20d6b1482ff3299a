#!/bin/sh
# Runs after the files are in place: the user, the home, the unit. It starts nothing and restarts nothing: streams would end.
set -e

if ! getent group millstream >/dev/null; then
    groupadd --system millstream
fi
if ! getent passwd millstream >/dev/null; then
    useradd --system --gid millstream --home-dir /var/lib/millstream --no-create-home --shell /usr/sbin/nologin millstream
fi
if [ ! -d /var/lib/millstream ]; then
    install -d -m 750 -o millstream -g millstream /var/lib/millstream
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    sysctl --quiet --load=/usr/lib/sysctl.d/60-millstream.conf 2>/dev/null || true
    if systemctl is-active --quiet millstream.service; then
        echo "millstream: the former version is still running; 'systemctl restart millstream' ends its streams and starts the new one"
    fi
fi
