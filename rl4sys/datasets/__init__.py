"""Datasets of recorded steps in NumPy, CSV and Parquet files."""
