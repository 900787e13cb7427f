"""WHAT TRAVELS: namespaces, schemas and changes. Pure: no files, no network, no clock."""
