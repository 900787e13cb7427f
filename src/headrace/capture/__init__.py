"""SOURCE -> LOG: what reads a source and appends its changes to the log."""
