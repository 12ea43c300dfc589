"""Measuring an engine or a server under load: data sets, records, figures, tables and plots.

An application above the engine. What every figure means is in docs/bench.md.
"""
