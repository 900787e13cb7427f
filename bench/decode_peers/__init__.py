"""Decoders that `bench/decode.py` puts side by side, each a program of its own.

A program prints a line `begin` when it is about to decode, and last the number of row changes that it saw (an update is one); what
it spent before `begin` counts as start-up. It ends with a code other than 0 when it could not go on, the reason on standard error.
"""
