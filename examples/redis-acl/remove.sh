#!/bin/sh
# Removes the user, which ends its connections, and then all keys below its prefix.
set -eu
NAME="dayfly-$DAYFLY_RESOURCE_ID"
redis() { redis-cli -e --no-auth-warning -h "$REDIS_HOST" -p "$REDIS_PORT" --user "$REDIS_USER" "$@"; }

# The first response proves that the server has processed all earlier commands, including those of a killed `provision`.
redis PING
redis ACL DELUSER "$NAME"
said=$(redis ACL SAVE 2>&1) || case $said in
    *'not configured to use an ACL file'*) ;;
    *) echo "$said" >&2; exit 1 ;;
esac

# The server deletes a thousand keys at a time: names of keys may contain any bytes, and other clients must not wait long.
PAGE="local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 1000)
      for _, key in ipairs(page[2]) do redis.call('UNLINK', key) end
      return page[1]"
cursor=0
while :; do
    cursor=$(redis EVAL "$PAGE" 0 "$cursor" "$NAME:*")
    [ "$cursor" != 0 ] || break
done
echo "user $NAME and its keys are gone"
