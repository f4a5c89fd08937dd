"""Entry point of ``python -m rl4sys.examples.lunar.lunar_lander.py``, a module name with its file ending."""

import sys
from importlib import import_module

if __name__ == "__main__":
    # The module name up to ".py".
    sys.exit(import_module(str(__package__)).main())
