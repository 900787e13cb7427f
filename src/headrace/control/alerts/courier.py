"""Brings messages to their channels, from the server that leads; each channel by itself, so that one that hangs keeps no other waiting."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from headrace.control.alerts.book import AlertBook
from headrace.control.alerts.noted import Message, NotedAlerts
from headrace.control.alerts.rules import Channel
from headrace.control.alerts.sending import send
from headrace.control.runs import Lease
from headrace.control.secrets import Secrets
from headrace.crash import crash_point
from headrace.errors import ConfigError, DataError, FencedError, HeadraceError, RetryableError
from headrace.retry import retrying

_LOOK_EVERY_S = 1.0
_AT_ONCE = 8
_NOTE_FOR_S = 20.0
"""How long to try to note what came of a message: less than it is this server's."""


class Courier:
    """One server's."""

    def __init__(
        self, book: AlertBook, noted: NotedAlerts, secrets: Secrets, lease: Callable[[], Lease | None]
    ) -> None:
        """`lease`: by which this server leads at the moment."""
        self.trouble = ""
        """Why the last look came to nothing; empty when all is well."""
        self._book = book
        self._noted = noted
        self._secrets = secrets
        self._lease = lease
        self._busy: set[str] = set()

    def run(self, stop: threading.Event) -> None:
        """What is on its way when it is told to stop is brought to its end."""
        with ThreadPoolExecutor(_AT_ONCE, "courier") as pool:
            while not stop.wait(_LOOK_EVERY_S):
                try:
                    self._look(pool)
                    self.trouble = ""
                except FencedError:
                    continue  # another one sends
                except HeadraceError as error:  # the next look tries again
                    self.trouble = str(error)
                except Exception as error:  # a fault of ours must not end all sending
                    self.trouble = f"{type(error).__name__}: {error}"
                    traceback.print_exc(file=sys.stderr)

    def _look(self, pool: ThreadPoolExecutor) -> None:
        lease = self._lease()
        if lease is None or not (waiting := self._noted.waiting()):
            return
        channels = {named.name: named.channel for named in self._book.channels()}
        for name in waiting.keys() - self._busy:
            taken_s = time.monotonic()
            if (message := self._noted.take(lease, name)) is None:
                continue
            crash_point("alerts.taken")
            self._busy.add(name)
            pool.submit(self._bring, channels.get(name), message, taken_s)

    def _bring(self, channel: Channel | None, message: Message, taken_s: float) -> None:
        try:
            came_to = self._sent(channel, message, taken_s)
            crash_point("alerts.sent")
            retrying(came_to, give_up_after_s=_NOTE_FOR_S)
        except HeadraceError as error:  # the store is away: it is sent once more, under the same id
            self.trouble = str(error)
        finally:
            self._busy.discard(message.channel)

    def _sent(self, channel: Channel | None, message: Message, taken_s: float) -> Callable[[], None]:
        """Sends it; what is to be noted of that."""
        if channel is None:
            return lambda: self._noted.refused(message, "there is no channel of that name any more")
        try:
            send(channel, message, self._secrets.values(), taken_s)
        except DataError as error:
            why = error.message
            return lambda: self._noted.refused(message, why)
        except (RetryableError, ConfigError) as error:  # until somebody has mended it
            why = error.message
            return lambda: self._noted.away(message, why)
        except Exception as error:  # a fault of ours must not leave the message to itself
            fault = f"a fault of headrace: {type(error).__name__}; see what the server printed"
            traceback.print_exc(file=sys.stderr)
            return lambda: self._noted.away(message, fault)
        return lambda: self._noted.sent(message)
