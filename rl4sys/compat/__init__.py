"""Public names of the designs that RL4Sys is based on, with one module or package per design."""
