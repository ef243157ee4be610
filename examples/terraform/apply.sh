#!/bin/sh
# The state lies in a folder that outlives the step, under the resource's id. It is no output of this step: an output
# is read once, when the step has ended, but the state must be written down with each thing that terraform makes, must
# be locked while somebody works on it, and shrinks while a destroy goes on.
set -eu
export CHECKPOINT_DISABLE=1 TF_IN_AUTOMATION=1 TF_INPUT=0 TF_CLI_ARGS=-no-color
[ -d "$STATE_FOLDER" ] || { echo "the param state-folder is '$STATE_FOLDER'; give a folder that exists" >&2; exit 1; }
state="$STATE_FOLDER/$DAYFLY_RESOURCE_ID"
mkdir -p "$state"
cd /tmp/module
terraform init -backend-config="path=$state/terraform.tfstate"
terraform apply -auto-approve -lock-timeout=5m

terraform output -json >/tmp/values
