"""The server's own SELECT as the judge of the decoder: what its log says, replayed, must be what it answers."""
