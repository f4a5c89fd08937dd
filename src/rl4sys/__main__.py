"""``python -m rl4sys`` is the command ``rl4sys``."""

from rl4sys.cli.main import main

if __name__ == "__main__":
    main()
