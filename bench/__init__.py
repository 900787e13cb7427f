"""Benchmarks: each file one question, answered side by side with a peer or a limit in one run. `python -m bench.<name>`."""
