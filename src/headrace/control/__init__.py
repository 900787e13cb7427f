"""RUNNING IT: keeps what is to run, and sees to it that it does; the REST API on top."""
