#!/bin/sh
# Puts a new certificate and its key in place for the server, which takes them into use by itself (docs/https.md).
#
#   deploy.sh CERTIFICATE KEY   certificate: the whole chain from the server's own on (PEM)
#
# As a deploy hook of certbot and a run or renew hook of lego it is told the files by their variables. SERVER_HOME
# is the home when it is not /var/lib/millstream.
set -eu

home=${SERVER_HOME:-/var/lib/millstream}
if [ $# -eq 2 ]; then
    certificate=$1
    key=$2
elif [ -n "${RENEWED_LINEAGE:-}" ]; then
    certificate=$RENEWED_LINEAGE/fullchain.pem
    key=$RENEWED_LINEAGE/privkey.pem
elif [ -n "${LEGO_CERT_PATH:-}" ]; then
    certificate=$LEGO_CERT_PATH
    key=$LEGO_CERT_KEY_PATH
else
    echo "deploy: usage: deploy.sh CERTIFICATE KEY" >&2
    exit 2
fi
if [ ! -d "$home/conf" ]; then
    echo "deploy: $home is no home of a server: start it there once, or set SERVER_HOME" >&2
    exit 1
fi

# A pair that does not belong together is not put in place; without openssl the server finds out, and keeps the old one.
if command -v openssl >/dev/null 2>&1; then
    of_certificate=$(openssl x509 -in "$certificate" -noout -pubkey)
    of_key=$(openssl pkey -in "$key" -pubout)
    if [ "$of_certificate" != "$of_key" ]; then
        echo "deploy: $key is not the key of $certificate" >&2
        exit 1
    fi
fi

# Drafts first, readable for the server's user alone from the first byte on; then a mark, behind which a start of the server finishes
# what a crash has cut off; then the drafts take their places. See "Files that change together" in src/disk/mod.rs.
conf=$home/conf
mark=$conf/fullchain.pem.commit
draft=
trap 'rm -f "$draft"' EXIT
stage() { # FROM NAME MODE
    draft=$(mktemp "$conf/.deploy.XXXXXX")
    cat "$1" > "$draft"
    if [ "$(id -u)" = 0 ]; then
        chown --reference="$conf" "$draft"
    fi
    chmod "$3" "$draft"
    mv -f "$draft" "$conf/$2"
    draft=
}
# An earlier run that was cut off behind its mark is finished first: its files may be in place in part.
if [ -e "$mark" ]; then
    for name in fullchain.pem privkey.pem chain.pem; do
        if [ -e "$conf/$name.draft" ]; then
            mv -f "$conf/$name.draft" "$conf/$name"
        fi
    done
    sync
    rm -f "$mark"
    sync
fi
stage "$key" privkey.pem.draft 600
stage "$certificate" fullchain.pem.draft 644
# The chain is part of the certificate's file; one of before does not belong to it.
stage /dev/null chain.pem.draft 644
sync
stage /dev/null fullchain.pem.commit 600
sync
for name in fullchain.pem privkey.pem chain.pem; do
    mv -f "$conf/$name.draft" "$conf/$name"
done
sync
rm -f "$conf/chain.pem" "$mark"
