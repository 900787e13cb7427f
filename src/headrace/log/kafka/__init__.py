"""Kafka as the log, through librdkafka: a topic per source, a record per entry, a transaction per append.

::

    record of Kafka               what it holds
    +-----------+---------------------------------------------------------------------------------------------------+
    | key       | the entry's key                                                                                   |
    | timestamp | the entry's time, ms; 1 when it is 0 or less (librdkafka takes 0 for "now")                       |
    | value     | the entry's value; or the n-th part of it, when the value is longer than `max.message.bytes` lets |
    | headers   | all are text, most records have none:                                                             |
    |           |   part = 2/5   the second of five records that hold one entry                                     |
    |           |   time = -7    the entry's time where the timestamp cannot say it                                 |
    |           |   end          the last record of an append                                                       |
    +-----------+---------------------------------------------------------------------------------------------------+

    offset    0      1           2        3           4           5           6       7         8
              a      b (end)   marker   c (1/3)     c (2/3)     c (3/3)     d (end) marker    open transaction …
              `- Span(0, 2) -'          `-------- Span(3, 7) -------------'                 ^
              entry a, entry b          entry c (at 3), entry d (at 6)                      end of what can be read

What keys and values are is the affair of headrace.codec.entries: UMS messages that any consumer understands, unless the log's `format` says
otherwise. A message of several rows is never cut.

An entry's offset is that of its first record. Offsets have gaps: each transaction ends with a marker of the broker, an aborted
one leaves records that nobody sees, and the later records of a cut entry count as well. `end` tells a reader that a marker
follows, so it knows that it has come to the end without waiting for a record that is not there.

Why transactions. Without them an append would be visible by halves, which followers could bear (they deliver up to marks, and
drop what comes twice), but two captures at once could not be kept apart: an older one, thought dead, would append marks behind
newer ones, and capture would resume there. A transactional id has an epoch which the broker checks with each request: whoever opens
the log last is the writer, and every other one is told so and stops. It costs 3 to 4 ms an append on one broker, where a bare
idempotent record costs 0.2 ms; large appends do not feel it. A writer has two ids, `headrace-<topic>-<partition>` and the same with
`.b`, which take turns (head of writer.py).

What a crash leaves, and what becomes of it:

=============================== ===================================== ====================================================
crash of the writer             at the broker                         the next writer
=============================== ===================================== ====================================================
before or while it sends        an open transaction, some records     aborts it when it opens; no reader sees any of it
sent, before the commit         an open transaction, all records      the same: it was never acknowledged
commit asked, no answer seen    committed or not                      opening waits until it is decided
committed, before `append`      committed; the marker is perhaps      as acknowledged; capture finds its mark, or appends
returned                        not yet written                       the same changes again, which followers drop
=============================== ===================================== ====================================================

Until the next writer opens, an open transaction holds readers back for at most `transaction.timeout.ms`; then the broker
aborts it. A crash of the broker or the loss of a leader takes nothing that was acknowledged: acks=all, and `min.insync.replicas`
copies of a record and of the commit (checked when the log opens; with less than two of three copies it is refused). An append
that was under way fails, retryable; its fate is decided before this process reads or appends again, so that capture goes on
from the mark that is really there.

`append` returns when what it wrote can be read: it waits for the marker, which the broker writes after it has answered.
"""

from headrace.log.kafka.log import KafkaLog

__all__ = ["KafkaLog"]
