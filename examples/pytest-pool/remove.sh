#!/bin/sh
set -eu
rm -f -- "$HOME/.cache/shop-db/$DAYFLY_RESOURCE_ID.db" "$HOME/.cache/shop-db/$DAYFLY_RESOURCE_ID.db-journal"
