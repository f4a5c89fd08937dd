"""Entry point of ``python -m rl4sys``."""

from rl4sys.cli.main import main

if __name__ == "__main__":
    main()
