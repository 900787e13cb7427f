"""WHAT THE AUTHOR WRITES: flow files, their model and their errors."""
