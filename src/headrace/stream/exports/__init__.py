"""What a run tells others of itself, by option: InfluxDB, OpenTelemetry, OpenLineage. None of them can hold a run up or end it."""
