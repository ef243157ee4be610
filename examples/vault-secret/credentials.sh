#!/bin/sh
# Each read creates new credentials. So this reads them once, into a private file.
set -eu
umask 077
bao read -format=json "database/creds/$ROLE" >lease.json
field() { sed -n "s/^ *\"$1\": \"\([A-Za-z0-9_-]*\)\",\{0,1\}\$/\1/p" lease.json | tr -d '\n'; }
field username >/tmp/username
field password >/tmp/password
if [ ! -s /tmp/username ] || [ ! -s /tmp/password ]; then
    echo "the answer has no username and password of letters, digits, - and _" >&2
    exit 1
fi
echo "leased credentials for $(cat /tmp/username)"
