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

# Readable for the server's user alone from the first byte on, and never half a file.
put() { # FROM TO MODE
    draft=$(mktemp "$home/conf/.deploy.XXXXXX")
    trap 'rm -f "$draft"' EXIT
    cat "$1" > "$draft"
    if [ "$(id -u)" = 0 ]; then
        chown --reference="$home/conf" "$draft"
    fi
    chmod "$3" "$draft"
    mv -f "$draft" "$home/conf/$2"
    trap - EXIT
}
put "$key" privkey.pem 600
put "$certificate" fullchain.pem 644
# The chain is part of the certificate's file; one of before does not belong to it.
rm -f "$home/conf/chain.pem"
