"""Start a training server in a checkout: ``cd rl4sys && python start_server.py --debug``.

This script is equivalent to ``rl4sys serve`` with the settings in ``start_server.yaml``, which store all data in
``rl4sys/logs``.
"""

from __future__ import annotations

import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent

if __name__ == "__main__":
    # Python puts the folder of a script first on the path, where modules of rl4sys would shadow other packages.
    sys.path[:] = [entry for entry in sys.path if entry != str(_FOLDER)]
    from rl4sys.server.server import main

    main(["--config", str(_FOLDER / "start_server.yaml"), *sys.argv[1:]])
