"""Tests of the C++ client against the Python client and server."""
