#!/bin/sh
# Dayfly keeps the state: where it is, and the right to it, stand in the environment (TF_HTTP_ADDRESS and its like).
set -eu
export CHECKPOINT_DISABLE=1 TF_IN_AUTOMATION=1 TF_INPUT=0 TF_CLI_ARGS=-no-color TF_VAR_resource_id="$DAYFLY_RESOURCE_ID"
cd /tmp/module
cat >backend_override.tf <<END   # whatever the module says of a backend
terraform {
  backend "http" {}
}
END
terraform init
if ! terraform apply -auto-approve -lock-timeout=5m; then
  # Written by terraform when nobody took the state for minutes. It is all that knows what was made.
  while [ -e errored.tfstate ] && ! terraform state push -lock-timeout=5m errored.tfstate; do sleep 5; done
  exit 1
fi
terraform output -json >/tmp/values
