"""Child processes: fork server, messages between parent and child, parent-death signal, lock wait."""
