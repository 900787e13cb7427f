"""The binlog that `bench/decode.py` decodes: what is written to a real MySQL server, and the log that it leaves, kept in the cache."""
