"""Python API of RL4Sys. Import the functions and classes from `rl4sys`: ``rl4sys.train(...)`` (docs/python.md)."""
