"""Changes of one source as a Spark source: ``format("headrace-mysql")``, ``format("headrace-hbase")``.

::

    driver     mysql, hbase (options into a configuration) -> consumer (a capture in a thread) -> own_log (PATH/log, PATH/state)
               plan (offsets: what a batch has of the log)
    executors  reading (a part of the log) -> frames (changes into the rows that Spark was promised)

Crash story: Spark's checkpoint has offsets of the own log, the own log has the position of the capture (capture/runner.py). So a query that
is started again reads the same ranges again, with the same rows, and goes on behind them; the capture goes on at the newest mark. The
process of the consumer ends when its query does, however that ends: Spark's JVM holds its standard input.
"""
