"""Entry point of ``python -m rl4sys.examples.lunar.lunar_lander.py``, where the module name ends in ``.py``."""

import sys
from importlib import import_module

if __name__ == "__main__":
    # __package__ is the module name without ".py".
    sys.exit(import_module(str(__package__)).main())
