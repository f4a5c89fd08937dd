#!/usr/bin/env bash
# Generate the Python descriptor and type stubs of the wire protocol: runs scripts/generate_proto.sh.
exec bash "$(dirname "$0")/../../scripts/generate_proto.sh" "$@"
