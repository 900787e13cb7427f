"""INTO A STORE: one store, one file. Every sink passes `headrace.testing.SinkConformance` by being in the registry."""
