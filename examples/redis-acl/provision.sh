#!/bin/sh
# One command makes the user with all its limits, so there is no half of it.
set -eu
umask 077
NAME="dayfly-$DAYFLY_RESOURCE_ID"
PASSWORD=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
redis() { redis-cli -e --no-auth-warning -h "$REDIS_HOST" -p "$REDIS_PORT" --user "$REDIS_USER"; }

# What tells the names of others' keys, reaches other databases, runs code in the server or takes it for long is left out.
# The command goes through standard input: an argument could be read by every user of the machine.
redis <<COMMAND
ACL SETUSER $NAME reset on >$PASSWORD ~$NAME:* &$NAME:* +@all -@admin -@dangerous -@scripting -scan -randomkey -dbsize -select -move -copy -pubsub
COMMAND
# So that a server with a file of users knows this one after a restart. Many have none.
said=$(echo 'ACL SAVE' | redis 2>&1) || case $said in
    *'not configured to use an ACL file'*) ;;
    *) echo "$said" >&2; exit 1 ;;
esac

printf %s "$NAME" >/tmp/user
printf %s "$NAME:" >/tmp/prefix
printf %s "$PASSWORD" >/tmp/password
echo "made user $NAME"
