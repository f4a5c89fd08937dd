#!/usr/bin/env bash
# Generate the Python descriptor and the type stubs of the wire protocol from proto/. Both are in the repository, and a
# test checks that they are up to date.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-rl4sys/wire}
for python in ${PYTHON:-.venv/bin/python python3}; do
  if "$python" -c 'import grpc_tools' 2>/dev/null; then found=$python && break; fi
done
if [ -z "${found:-}" ]; then
  echo "generate_proto: $python has no grpcio-tools; install it in this checkout: pip install -e ." >&2
  exit 1
fi
made=$(mktemp -d)
trap 'rm -r "$made"' EXIT
"$found" -m grpc_tools.protoc --proto_path=proto --pyi_out="$made" \
  --descriptor_set_out="$out/training.binpb" rl4sys/v1/training.proto
cp "$made/rl4sys/v1/training_pb2.pyi" "$out/messages.pyi"
