"""IS IT THE SAME: compares what should be with what is, by counts and contents."""
