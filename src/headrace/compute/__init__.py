"""Computing on the way into a target: a flow's `sql` and `steps` (docs/how-to/sql.md, docs/decisions/0046-computing-row-by-row.md)."""
