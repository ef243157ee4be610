#!/bin/sh
# Generates src/dayfly/routeserver/routes_pb2.py from routes.proto, with the protoc of grpcio-tools in a separate environment.
# Usage: proto.sh [OUT]  (OUT: a folder for the result; the default is that of routes.proto)
set -eu
cd "$(dirname -- "$0")/.."
out=${1:-src/dayfly/routeserver}
tools=.cache/proto
[ -e "$tools/bin/python" ] || { python3 -m venv "$tools" && "$tools/bin/pip" install --quiet grpcio-tools==1.80.0; }
"$tools/bin/python" -m grpc_tools.protoc --proto_path=src/dayfly/routeserver --python_out="$out" --pyi_out="$out" routes.proto
