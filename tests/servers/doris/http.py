"""The HTTP side: what frontends and backends answer (what is quoted of Doris stands in the shared notes on stream load)."""

from __future__ import annotations

import base64
import json
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlsplit

from tests.servers.doris import rows
from tests.servers.doris.tables import TableError
from tests.servers.doris.transactions import LabelTakenError, Transaction, TransactionError

if TYPE_CHECKING:
    from tests.servers.doris.cluster import Doris, Listener


class CutError(Exception):
    """The connection is to end now."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Listener

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def handle_expect_100(self) -> bool:
        return True  # who takes the body says so

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    @property
    def doris(self) -> Doris:
        return self.server.doris

    @property
    def said(self) -> dict[str, str]:
        # http.server reads them as Latin-1.
        return {name.lower(): value.encode("latin-1").decode() for name, value in self.headers.items()}

    def do_PUT(self) -> None:
        self._guarded(self.put)

    def do_GET(self) -> None:
        self._guarded(self.get)

    def put(self) -> None:
        self.answer({"status": "FAILED", "msg": "Not found"}, 404)

    def get(self) -> None:
        self.answer({"msg": "Not Found", "code": 404}, 404)

    def _guarded(self, action: Any) -> None:
        self.doris.seen.append((self.server.role, self.command, self.path, self.said))
        try:
            action()
        except (CutError, OSError):
            self.close_connection = True
            self.server.cut(self.connection)

    def answer(self, said: dict[str, Any], status: int = 200, *, close: bool = False) -> None:
        self.answer_bytes((json.dumps(said, indent=4) + "\n").encode(), "application/json", status, close=close)

    def answer_bytes(self, body: bytes, kind: str, status: int = 200, *, close: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if close:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    @property
    def is_known(self) -> bool:
        wanted = base64.b64encode(f"{self.doris.user}:{self.doris.password}".encode()).decode()
        return self.headers.get("Authorization", "") == f"Basic {wanted}"


class FrontendHandler(Handler):
    """Port 8030."""

    def put(self) -> None:
        label = self.headers.get("label", self.headers.get("txn_id", ""))
        self._struck_before(label)
        if not self.is_known:
            self._unauthorized()
            return
        parts = urlsplit(self.path).path.strip("/").split("/")
        if parts[0] != "api" or parts[-1] not in ("_stream_load", "_stream_load_2pc"):
            super().put()
            return
        if parts[-1] == "_stream_load":
            if "Expect" not in self.headers:
                self.answer({"status": "FAILED", "msg": "There is no 100-continue header"}, close=True)
                return
            try:
                self.doris.store.table(parts[1], parts[2])
            except TableError as error:
                self.answer({"status": "FAILED", "msg": str(error)}, close=True)
                return
        elif not label:
            self.answer({"status": "FAILED", "msg": "No transaction id or label selected."})
            return
        self._redirect(label)

    def _struck_before(self, label: str) -> None:
        strikes = self.doris.faults.strikes
        if fault := strikes("fe_slow", label):
            time.sleep(fault.seconds)
        if strikes("fe_cut", label):
            raise CutError

    def _redirect(self, label: str) -> None:
        strikes = self.doris.faults.strikes
        if strikes("fe_500", label):
            self.answer({"msg": "Internal Server Error"}, 500, close=True)
            return
        if strikes("fe_html", label):
            self.answer_bytes(b"<html>a proxy's error page</html>", "text/html", close=True)
            return
        backend = None if strikes("fe_no_backend", label) else self.doris.next_backend()
        if backend is None:
            self.answer({"status": "FAILED", "msg": "No backend load available, policy: policy computed"}, close=True)
            return
        elsewhere = strikes("fe_elsewhere", label)
        place = elsewhere.text if elsewhere else backend
        self.send_response(307)
        self.send_header("Content-Type", "text/html;charset=utf-8")
        login = f"{quote(self.doris.user)}:{quote(self.doris.password)}"
        self.send_header("Location", f"http://{login}@{place}{urlsplit(self.path).path}?")
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()

    def get(self) -> None:
        if not self.is_known:
            self._unauthorized()
            return
        url = urlsplit(self.path)
        parts, asked = url.path.strip("/").split("/"), {name: v[0] for name, v in parse_qs(url.query).items()}
        self._struck_before(asked.get("label", ""))
        if parts[-1] == "get_load_state":
            self._state(parts[1], asked.get("label", ""))
        elif parts == ["api", "bootstrap"]:
            self._data({"replayedJournalId": 0, "queryPort": 0, "rpcPort": 0, "version": ""})
        elif parts == ["api", "backends"]:
            self._data({"backends": [self._backend(place) for place in self.doris.backends_alive()]})
        elif parts[-1] == "_schema":
            self._schema(parts[1], parts[2])
        elif parts == ["api", "health"]:
            alive = len(self.doris.backends_alive())
            self._data({"total_backend_num": alive, "online_backend_num": alive})
        else:
            super().get()

    def _backend(self, place: str) -> dict[str, Any]:
        host, port = place.rsplit(":", 1)
        return {"ip": host, "http_port": int(port), "is_alive": True}

    def _state(self, database: str, label: str) -> None:
        if self.doris.faults.strikes("state_500", label):
            self.answer({"msg": "Internal Server Error"}, 500)
        elif not label:
            self.answer({"msg": "Bad Request", "code": 403, "data": "No label selected", "count": 0})
        elif database not in self.doris.store.databases:
            self.answer({"msg": "Error", "code": 1, "data": f"unknown database, database={database}", "count": 0})
        else:
            self._data(self.doris.transactions.state(database, label))

    def _schema(self, database: str, name: str) -> None:
        try:
            table = self.doris.store.table(database, name)
        except TableError as error:
            self.answer({"msg": "Error", "code": 1, "data": str(error), "count": 0})
            return
        columns = [
            {"name": one.name, "aggregation_type": "", "comment": "", "type": one.type.upper().split("(")[0]}
            | dict(
                zip(
                    ("precision", "scale"),
                    one.type.rstrip(")").partition("(")[2].replace(" ", "").split(","),
                    strict=False,
                )
            )
            for one in table.fields
        ]
        self._data({"keysType": f"{table.model}_KEYS", "properties": columns, "status": 200})

    def _data(self, data: Any) -> None:
        self.answer({"msg": "success", "code": 0, "data": data, "count": 0})

    def _unauthorized(self) -> None:
        data = f"Access denied for {self.doris.user}@127.0.0.1"
        self.answer({"msg": "Unauthorized", "code": 401, "data": data, "count": 0}, close=True)


class BackendHandler(Handler):
    """Port 8040."""

    def get(self) -> None:
        url = urlsplit(self.path)
        name = parse_qs(url.query).get("file", [""])[0]
        lines = self.doris.error_logs.get(name)
        if url.path != "/api/_load_error_log" or lines is None:
            super().get()
            return
        self.answer_bytes("\n".join(lines).encode(), "text/plain")

    def put(self) -> None:
        if not self.is_known:
            self.answer(_told("Fail", "[INTERNAL_ERROR]no valid Basic authorization"), close=True)
            return
        parts = urlsplit(self.path).path.strip("/").split("/")
        if parts[-1] == "_stream_load_2pc":
            self._two_phase(parts[1])
        elif parts[-1] == "_stream_load":
            self._load(parts[1], parts[2])
        else:
            super().put()

    # --- a load

    def _load(self, database: str, name: str) -> None:
        doris, label = self.doris, self.headers.get("label", "") or f"auto-{time.monotonic_ns()}"
        strikes = doris.faults.strikes
        if strikes("be_cut_headers", label):
            raise CutError
        if fault := strikes("be_slow", label):
            time.sleep(fault.seconds)
        try:
            doris.store.table(database, name)
            timeout_s = float(self.headers.get("timeout", "600"))
            transaction = doris.transactions.begin(database, name, label, timeout_s)
        except LabelTakenError as taken:
            message = f"{doris.style}errCode = 2, detailMessage = {taken}"
            said = _told("Label Already Exists", message, label=label)
            self.answer(said | {"ExistingJobStatus": taken.existing}, close=True)
            return
        except (TableError, TransactionError) as error:
            self.answer(_told("Fail", f"{doris.style}{error}", label=label), close=True)
            return
        try:
            self.server.running.add(transaction.id)
            body = self._body(label)
            if strikes("be_detach", label):
                doris.detached.append((transaction, lambda: self._write(transaction, body)))
                raise CutError  # the client is cut off, the load is not
        except OSError as error:
            doris.transactions.abort(transaction, f"sender is gone: {error}")
            raise
        except CutError:
            if not any(one is transaction for one, _ in doris.detached):
                doris.transactions.abort(transaction, "sender is gone")
            raise
        finally:
            self.server.running.discard(transaction.id)
        self._end(transaction, label, self._write(transaction, body))

    def _body(self, label: str) -> bytes:
        if "Expect" in self.headers:
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return b"".join(self._chunks(label))
        length = int(self.headers.get("Content-Length", "0"))
        if self.doris.faults.strikes("be_cut_body", label):
            self.rfile.read(length // 2)
            raise CutError
        body = self.rfile.read(length)
        if len(body) != length:
            raise ConnectionResetError("receive body don't equal with body bytes")
        return body

    def _chunks(self, label: str) -> Any:
        cut = self.doris.faults.strikes("be_cut_body", label)
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            chunk = self.rfile.read(size)
            self.rfile.readline()
            if cut:
                raise CutError
            if len(chunk) != size:
                raise ConnectionResetError("a chunk is not whole")
            yield chunk
        self.rfile.readline()

    def _write(self, transaction: Transaction, body: bytes) -> dict[str, Any]:
        """Everything between the body and the answer."""
        doris, label, strikes = self.doris, transaction.label, self.doris.faults.strikes
        two_phase = self.headers.get("two_phase_commit", "false").lower() == "true"
        said = {"TxnId": transaction.id, "TwoPhaseCommit": str(two_phase).lower(), "Label": label}
        try:
            if fault := strikes("be_fail", label):
                raise rows.LoadError(fault.text)
            table = doris.store.table(transaction.database, transaction.table)
            with doris.store.lock:
                loaded = (
                    self._counted_only(body) if doris.counts_only else rows.read(doris.store, table, self.said, body)
                )
            said |= self._counted(loaded, len(body))
            counted = loaded.total or 1
            if len(loaded.refused) / counted > float(self.headers.get("max_filter_ratio", "0")):
                raise rows.LoadError(f"[{doris.quality}]too many filtered rows")
            transaction.apply = (lambda: None) if doris.counts_only else lambda: doris.store.apply(table, loaded.rows)
            if two_phase:
                doris.transactions.precommit(transaction)
                return _told("Success", "OK") | said
            late = strikes("be_publish_timeout", label)
            doris.transactions.commit(transaction, late.seconds if late else 0.0)
        except (rows.LoadError, TableError, TransactionError, ValueError) as error:
            doris.transactions.abort(transaction, str(error))
            return _told("Fail", str(error)) | said
        if late:
            message = "transaction commit successfully, BUT data will be visible later"
            return _told("Publish Timeout", message) | said
        return _told("Success", "OK") | said

    def _counted_only(self, body: bytes) -> rows.Loaded:
        count = body.count(b"\n")
        self.doris.rows_counted += count
        return rows.Loaded(rows.Rows([], [()] * count, []), count)

    def _counted(self, loaded: rows.Loaded, size: int) -> dict[str, Any]:
        counts: dict[str, Any] = {
            "NumberTotalRows": loaded.total,
            "NumberLoadedRows": len(loaded.rows.values),
            "NumberFilteredRows": len(loaded.refused),
            "LoadBytes": size,
        }
        if loaded.refused:
            name = f"__shard_0/error_log_insert_stmt_{len(self.doris.error_logs)}"
            self.doris.error_logs[name] = loaded.refused[:50]
            counts["ErrorURL"] = f"http://{self.server.place}/api/_load_error_log?file={name}"
        return counts

    def _end(self, transaction: Transaction, label: str, said: dict[str, Any]) -> None:
        strikes = self.doris.faults.strikes
        if said["Status"] != "Fail":
            if strikes("be_cut_committed", label):
                raise CutError
            if strikes("be_json_committed", label):
                self.answer(said | {"TxnId": None, "NumberTotalRows": "many", "ErrorURL": 7})
                return
            if strikes("be_html_committed", label):
                self.answer_bytes(b"<html>a proxy's error page</html>", "text/html", close=True)
                return
        if strikes("be_500", label):
            self.answer_bytes(b"", "text/plain", 500, close=True)
            return
        self.answer(said)

    # --- the second phase

    def _two_phase(self, database: str) -> None:
        asked, label = self.headers.get("txn_id", ""), self.headers.get("label", "")
        operation = self.headers.get("txn_operation", "")
        strikes, transactions = self.doris.faults.strikes, self.doris.transactions
        what = asked or label
        if strikes("2pc_cut_before", what):
            raise CutError
        try:
            if fault := strikes("2pc_fail", what):
                raise TransactionError(fault.text)
            if operation not in ("commit", "abort"):
                raise TransactionError("transaction operation should be 'commit' or 'abort'")
            if asked and not asked.isdecimal():
                raise TransactionError(f"convert txn_id [{asked}] failed")
            late = strikes("2pc_publish_timeout", what)
            if not asked:
                message = transactions.by_label(database, label, operation, late.seconds if late else 0.0)
            elif operation == "commit":
                message = transactions.commit_by_id(int(asked), late.seconds if late else 0.0)
            else:
                message = transactions.abort_by_id(int(asked))
        except TransactionError as error:
            self.answer({"status": "ANALYSIS_ERROR", "msg": f"TStatus: errCode = 2, detailMessage = {error}"})
            return
        if strikes("2pc_cut_after", what):
            raise CutError
        self.answer({"status": "Success", "msg": message})


def _told(status: str, message: str, label: str = "") -> dict[str, Any]:
    """The answer of a backend, with all its fields in their order."""
    return {
        "TxnId": -1, "Label": label, "Comment": "", "TwoPhaseCommit": "false", "Status": status, "Message": message,
        "NumberTotalRows": 0, "NumberLoadedRows": 0, "NumberFilteredRows": 0, "NumberUnselectedRows": 0, "LoadBytes": 0,
        "LoadTimeMs": 1, "BeginTxnTimeMs": 0, "StreamLoadPutTimeMs": 0, "ReadDataTimeMs": 0, "WriteDataTimeMs": 0,
        "CommitAndPublishTimeMs": 0,
    }  # fmt: skip
