#!/bin/sh
# First the role, so that no new lease is made with it; then all leases, reported or not. Both commands succeed if there is
# none. Vault responds after the database has removed the users.
set -eu
name="dayfly-$DAYFLY_RESOURCE_ID"
bao delete "database/roles/$name"
bao lease revoke -sync -prefix "database/creds/$name"
