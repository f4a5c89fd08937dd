"""Former name of `rl4sys.policy.numpy_program`, imported by native cores compiled before the rename."""

from rl4sys.policy.numpy_program import as_flat_row, as_mask, as_memory, as_row, as_rows

__all__ = ["as_flat_row", "as_mask", "as_memory", "as_row", "as_rows"]
