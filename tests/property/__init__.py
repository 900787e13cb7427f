"""Tests against oracles, with inputs made by hypothesis."""
