"""BYTES -> ARROW: thin faces of the native core. No connections, no clock."""
