"""WHERE FILES LIE: a directory of this machine, or file systems that several machines share, behind one contract (base.py)."""
