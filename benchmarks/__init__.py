"""Benchmarks behind the figures in docs/. Each prints a table and writes one JSON file."""
