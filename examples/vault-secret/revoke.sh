#!/bin/sh
# First the role, so that nothing new is leased by it; then all that was, told or not. Neither minds if there is none.
# Vault answers when the database has let the users go.
set -eu
name="dayfly-$DAYFLY_RESOURCE_ID"
bao delete "database/roles/$name"
bao lease revoke -sync -prefix "database/creds/$name"
