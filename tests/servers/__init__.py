"""Real servers for tests and benchmarks, from Debian packages: started on loopback, ended by their own process ids."""
