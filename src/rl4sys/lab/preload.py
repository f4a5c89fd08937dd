"""Run once in the process that trials are forked from: loads what they need."""

import gc

import rl4sys.lab.worker
import rl4sys.server.preload  # noqa: F401 - learns once, so that torch is loaded whole

gc.collect()
gc.freeze()
