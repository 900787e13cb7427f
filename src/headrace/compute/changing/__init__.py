"""Tables computed from tables that change: sources of `type: sql` (docs/how-to/sql-tables.md, docs/decisions/0047-tables-from-tables-that-change.md)."""
