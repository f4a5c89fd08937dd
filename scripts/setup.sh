#!/usr/bin/env bash
# Set up a Debian machine with Python 3.11: system packages, virtual environment, compiled native core.
# make runs this script if one of its inputs has changed.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}
python=${PYTHON:-python3}

. scripts/packages.sh

missing=()
command -v "$python" >/dev/null || missing+=(python3)
command -v g++ >/dev/null || missing+=(g++)
command -v git >/dev/null || missing+=(git)
if command -v "$python" >/dev/null; then
  "$python" -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
  header='import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
  "$python" -c "$header" || missing+=(python3-dev)
else
  missing+=(python3-venv python3-dev)
fi
if [ ${#missing[@]} -gt 0 ] && command -v apt-get >/dev/null; then install_system_packages "${missing[@]}"; fi

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "setup: rl4sys needs Python 3.11 or newer")'
if [ ! -x "$venv/bin/python" ]; then
  echo "setup: creating the virtual environment $venv"
  "$python" -m venv "$venv"
fi
echo "setup: installing rl4sys with its dependencies and compiling its core (a few minutes the first time)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt \
  "scikit-build-core" "nanobind" "cmake>=3.15" "ninja" 2> >(grep -v '^WARNING: Location' >&2)
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation \
  --editable '.[all,envpool,mlflow,dev]' 2> >(grep -v '^WARNING: Location' >&2)
if ! "$venv/bin/python" -c 'import rl4sys._core' 2>/dev/null; then
  if command -v g++ >/dev/null; then
    echo "setup: the native core did not compile. For the compiler's messages run:" >&2
    echo "  $venv/bin/python -m pip install -v --no-build-isolation --no-deps --editable ." >&2
    exit 1
  fi
  echo "setup: no C++ compiler was found; policies run on numpy, which is slower"
fi
