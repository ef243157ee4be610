#!/bin/sh
# One command creates the user with all its limits, so there is no incomplete state.
set -eu
umask 077
NAME="dayfly-$DAYFLY_RESOURCE_ID"
PASSWORD=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
redis() { redis-cli -e --no-auth-warning -h "$REDIS_HOST" -p "$REDIS_PORT" --user "$REDIS_USER"; }

# Excluded are commands that list other users' keys, access other databases, run code in the server or block it for long.
# The command goes through standard input, because every user of the machine could read an argument.
redis <<COMMAND
ACL SETUSER $NAME reset on >$PASSWORD ~$NAME:* &$NAME:* +@all -@admin -@dangerous -@scripting -scan -randomkey -dbsize -select -move -copy -pubsub
COMMAND
# A server with an ACL file then keeps this user after a restart. Many servers have no such file.
said=$(echo 'ACL SAVE' | redis 2>&1) || case $said in
    *'not configured to use an ACL file'*) ;;
    *) echo "$said" >&2; exit 1 ;;
esac

printf %s "$NAME" >/tmp/user
printf %s "$NAME:" >/tmp/prefix
printf %s "$PASSWORD" >/tmp/password
echo "made user $NAME"
