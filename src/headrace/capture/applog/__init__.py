"""Application logs out of files of many hosts: found by a pattern, followed through rotation, read to the exact byte.

::

    pattern: names -> hosts    content: bytes of a file, packed ones too    followed: one file and its offset
    listing: directories at one moment    order: which file is older    copies: which has what another one had
    files: which file is which, after each rotation                         source: lines of all of them as changes
"""
