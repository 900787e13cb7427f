"""Alerts: what people want to be told of, and that they are told once, by somebody, whatever dies."""
