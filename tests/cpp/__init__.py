"""The C++ client, against the Python one."""
