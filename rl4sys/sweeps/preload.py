"""Modules that the fork server of a sweep or study loads once for all trial processes."""

import rl4sys.server.preload
import rl4sys.sweeps.worker  # noqa: F401
from rl4sys.workers.fork_server import freeze_loaded_modules

freeze_loaded_modules()
