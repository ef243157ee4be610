#!/bin/sh
# Destroys what the state knows, which may be less than the whole module if apply was cut short, or nothing. The state
# goes last, and only when it is empty: until then this step can be repeated.
set -eu
export CHECKPOINT_DISABLE=1 TF_IN_AUTOMATION=1 TF_INPUT=0 TF_CLI_ARGS=-no-color
state="$STATE_FOLDER/$DAYFLY_RESOURCE_ID"
[ -d "$state" ] || { echo "there is no state: nothing was made, or all is gone"; exit 0; }
cd /tmp/module
terraform init -backend-config="path=$state/terraform.tfstate"
terraform destroy -auto-approve -lock-timeout=5m

left=$(terraform state list)
[ -z "$left" ] || { echo "still there: $left" >&2; exit 1; }
rm -rf -- "$state"
