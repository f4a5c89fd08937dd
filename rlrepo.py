"""Manage runs: `python -m rlrepo list|compare|export|cleanup …` runs the `rl4sys` command of that name."""

from rl4sys.cli.main import main

if __name__ == "__main__":
    main()
