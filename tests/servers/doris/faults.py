"""What goes wrong on demand: each fault strikes the requests that it fits, so many times.

========================= ==========================================================================================
at a frontend             `fe_cut`: no answer · `fe_500` · `fe_html`: no JSON · `fe_no_backend` · `fe_elsewhere`: a redirect to
                          `text` (host:port) · `fe_slow`: an answer after `seconds` · `state_500`: asked for a label
at a backend, of a load   `be_cut_headers`: before the body · `be_cut_body`: in the middle of it, rolled back · `be_detach`: the client is
                          cut off, and the load goes on till `Doris.finish_detached` · `be_fail`: rolled back, with the message
                          `text` · `be_500`: rolled back · `be_publish_timeout`: visible `seconds` later · `be_cut_committed`:
                          committed, no answer · `be_html_committed`: committed, no JSON · `be_json_committed`: committed, JSON that
                          makes no sense · `be_slow`
at a backend, of 2PC      `2pc_cut_before` · `2pc_cut_after`: done, no answer · `2pc_fail`: with the message `text` ·
                          `2pc_publish_timeout`: visible `seconds` later
========================= ==========================================================================================
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field


@dataclass
class Fault:
    kind: str
    label: str = ""
    """A pattern that the label, or the id of a transaction, must have in it."""
    times: int = 1
    text: str = ""
    seconds: float = 0.0


@dataclass
class Faults:
    waiting: list[Fault] = field(default_factory=list)
    struck: list[tuple[str, str]] = field(default_factory=list)
    """Kind and label of those that came."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, label: str = "", times: int = 1, text: str = "", seconds: float = 0.0) -> None:
        with self._lock:
            self.waiting.append(Fault(kind, label, times, text, seconds))

    def clear(self) -> None:
        with self._lock:
            self.waiting.clear()

    def strikes(self, kind: str, label: str) -> Fault | None:
        """The fault that is to happen now."""
        with self._lock:
            for one in self.waiting:
                if one.kind == kind and one.times > 0 and re.search(one.label, label):
                    one.times -= 1
                    self.struck.append((kind, label))
                    return one
        return None
