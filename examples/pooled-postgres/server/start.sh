#!/bin/sh
# Starts the server. It runs in a container, because processes of a step end with the step.
set -eu
umask 077
NAME="dayfly-postgres-$DAYFLY_RESOURCE_ID"
POSTGRES_PASSWORD=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
export POSTGRES_PASSWORD   # every user of the machine could read an argument of docker

docker run --detach --name "$NAME" --label "dayfly.resource=$DAYFLY_RESOURCE_ID" \
    --publish 127.0.0.1::5432 --env POSTGRES_PASSWORD "$IMAGE" postgres -c max_connections=500 >/dev/null
# While it initialises its data, the server listens only on its socket.
until docker exec "$NAME" pg_isready --quiet --host 127.0.0.1; do
    if [ "$(docker inspect --format '{{.State.Running}}' "$NAME")" != true ]; then
        docker logs --tail 20 "$NAME" >&2
        exit 1
    fi
    sleep 0.2
done
ADDRESS=$(docker port "$NAME" 5432/tcp | head -n 1)
printf %s "${ADDRESS%:*}" >/tmp/host
printf %s "${ADDRESS##*:}" >/tmp/port
printf %s postgres >/tmp/user
printf %s "$POSTGRES_PASSWORD" >/tmp/password
echo "started $NAME at $ADDRESS"
