"""Benchmarks: each is one file, run as ``python -m bench.<name>``; results with machine and versions are in results/."""
