"""headrace: log-based, real-time data integration on PySpark.

The water runs one way: capture -> log -> stream -> sink. Each word is a package; ARCHITECTURE.md draws the house.
"""

__version__ = "0.1.0"
