#!/usr/bin/env bash
# Make the Python form of the wire from proto/: a descriptor, and types for the checker. Both are kept in the
# repository, and a test checks that they are current.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-src/rl4sys/wire}
made=$(mktemp -d)
trap 'rm -r "$made"' EXIT
"${PYTHON:-.venv/bin/python}" -m grpc_tools.protoc --proto_path=proto --pyi_out="$made" \
  --descriptor_set_out="$out/training.binpb" rl4sys/v1/training.proto
cp "$made/rl4sys/v1/training_pb2.pyi" "$out/messages.pyi"
