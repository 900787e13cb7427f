"""Stores in which flows look rows up: the contract is base.py, one store is one file (registry.LOOKUPS, entry point ``headrace.lookups``)."""
