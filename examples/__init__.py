"""Aliases of the modules in `rl4sys.examples`, so that commands of earlier documents work."""
