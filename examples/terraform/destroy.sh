#!/bin/sh
# Destroys the objects in the state: those of the whole module, or fewer if apply was interrupted. Then `sweep`, if the
# sandbox passes one, removes objects with the resource's id that are not in the state. It may run repeatedly.
set -eu
export CHECKPOINT_DISABLE=1 TF_IN_AUTOMATION=1 TF_INPUT=0 TF_CLI_ARGS=-no-color TF_VAR_resource_id="$DAYFLY_RESOURCE_ID"
cat >backend_override.tf <<END
terraform {
  backend "http" {}
}
END
# First without the module, in the step's empty folder: an invalid module has created nothing.
terraform init
if [ -n "$(terraform state pull)" ] && [ -n "$(terraform state list)" ]; then
  cp backend_override.tf /tmp/module
  cd /tmp/module
  terraform init
  if ! terraform destroy -auto-approve -lock-timeout=5m; then
    while [ -e errored.tfstate ] && ! terraform state push -lock-timeout=5m errored.tfstate; do sleep 5; done
    exit 1
  fi
  left=$(terraform state list)
  [ -z "$left" ] || { echo "still there: $left" >&2; exit 1; }
fi
[ ! -s /tmp/module/sweep.sh ] || sh -eu /tmp/module/sweep.sh
