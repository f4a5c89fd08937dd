"""Names of the designs that RL4Sys is based on, one module or package per design."""
