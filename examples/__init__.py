"""Names of the examples in earlier documents; the examples are in `rl4sys.examples`."""
