"""HBase's write-ahead log as a source: files that servers write, roll, leave behind and delete, as changes of rows.

::

    places (names, directories) -> following (where each file is, whose turn it is) -> changes (cells of a row) -> source (capture)
                                                                                                             \\-> client (callbacks)
"""
