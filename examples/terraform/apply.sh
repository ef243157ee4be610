#!/bin/sh
# Dayfly keeps the state. Its address and credentials are in the environment (TF_HTTP_ADDRESS and others).
set -eu
export CHECKPOINT_DISABLE=1 TF_IN_AUTOMATION=1 TF_INPUT=0 TF_CLI_ARGS=-no-color TF_VAR_resource_id="$DAYFLY_RESOURCE_ID"
cd /tmp/module
cat >backend_override.tf <<END   # overrides a backend in the module
terraform {
  backend "http" {}
}
END
terraform init
if ! terraform apply -auto-approve -lock-timeout=5m; then
  # Terraform writes this file if the state server was unavailable for minutes. Only this file lists the created objects.
  while [ -e errored.tfstate ] && ! terraform state push -lock-timeout=5m errored.tfstate; do sleep 5; done
  exit 1
fi
terraform output -json >/tmp/values
