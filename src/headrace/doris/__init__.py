"""Topics of Kafka into tables of Doris, exactly once: see loader.py."""
