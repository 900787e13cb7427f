"""WHERE IT RESTS: bytes and offsets. The log knows nothing of tables or changes; it keeps entries, in order, durably."""
