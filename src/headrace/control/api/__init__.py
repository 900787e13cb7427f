"""The REST API: what is under /api/v1, described at /api/v1/openapi.json."""
