"""Tests; `servers` starts the real servers that they talk to."""
