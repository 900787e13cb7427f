"""A stand-in for Apache Doris: it keeps the protocol of stream loads, and there is no Doris in it.

No registry of packages has a Doris server. So tests run against this one, whose answers follow Doris' sources and regression tests (the
messages, the states, the order of checks), and which the real connector `spark-doris-connector-spark-3.5` writes through
(`tests/servers/doris/connector.py`). What passes here is not thereby tested on Doris.

::

    cluster.py       Doris: frontends, backends, the MySQL port; stopping, starting, looking into it
    http.py          frontend: 307, states of labels, backends, schema; backend: loads, two phases, error logs
    sql.py           the MySQL port (mysql-mimic): CREATE, ALTER, SELECT, INSERT … SELECT WITH LABEL, SHOW …
    transactions.py  states, labels, and how they are forgotten, by a clock that tests move
    tables.py        keys, sequence column, delete sign, partitions, on SQLite;  values.py  types;  rows.py, csv.py  bodies of loads
    faults.py        what goes wrong on demand

What it does not have it refuses: `where`, `jsonpaths`, derived columns, `merge_type: MERGE`, partial updates, AGGREGATE tables,
compression other than gzip, TLS. A column that only a body has is passed over by Doris, and refused here: it would hide a name that is wrong.
"""

from tests.servers.doris.cluster import Doris

__all__ = ["Doris"]
