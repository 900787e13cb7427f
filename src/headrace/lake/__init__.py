"""THE TRUTH ON FILES: every change kept in immutable Parquet, listed by atomic commits."""
