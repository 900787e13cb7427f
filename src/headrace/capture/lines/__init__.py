"""Lines of application logs into rows of tables, by the rules of a source (docs/how-to/app-logs.md), whole columns at a time.

::

    a line's fields (line, host, path, event) --steps of the first rule that fits--> fields --`time`, `columns`--> a row of the rule's table
                                               \\--no rule fits--> a row of `_unmatched_`, with the reason

`fields` and `times` are the ground, `steps` the operators, `columns` the types, `rules` what a flow file says, `tables` what becomes of it.
"""
