"""The byte port: ranges, conditions and what it does not do."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fakes.upstream import gguf
from llmgw.mirror.bytes_app import bytes_app
from llmgw.mirror.store import Store
from llmgw.net.port import Port
from llmgw_agent.fetch.download import download

DATA = gguf(3_000_000)
SHA = hashlib.sha256(DATA).hexdigest()
TAG = f'"{SHA}"'
FILE = "/m/1/m.gguf"
IMMUTABLE = "public, max-age=31536000, immutable"


@pytest.fixture
async def held(start: Callable[..., Any], tmp_path: Path) -> Any:
    """A mirror that holds m/1 with one file."""
    (tmp_path / "models/m/1").mkdir(parents=True)
    (tmp_path / "models/m/1/m.gguf").write_bytes(DATA)
    mirror = await start()
    await mirror.until("present")
    return mirror


async def test_a_file_is_given_whole_with_what_tells_it_apart(held: Any):
    answered = await held.get(FILE)

    assert answered.status == 200
    assert answered.body == DATA
    del answered.headers["Date"]
    assert answered.headers == {
        "Etag": TAG,
        "Cache-Control": IMMUTABLE,
        "Content-Type": "application/octet-stream",
        "Accept-Ranges": "bytes",
        "Content-Length": str(len(DATA)),
        "Server": "llmgw",
        "X-Content-Type-Options": "nosniff",
    }


async def test_head_says_the_same_without_the_bytes(held: Any):
    answered = await held.call("HEAD", held.base + FILE)

    assert (answered.status, answered.body, answered.headers["Content-Length"]) == (200, b"", str(len(DATA)))


N = len(DATA)


@pytest.mark.parametrize(
    ("asked", "first", "after"),
    [
        ("bytes=0-", 0, N),
        ("bytes=0-0", 0, 1),
        ("bytes=100-199", 100, 200),
        ("bytes=2999999-", N - 1, N),
        ("bytes=2999990-9999999", N - 10, N),
        ("bytes=-10", N - 10, N),
        ("bytes=-9999999", 0, N),
        ("bytes=1048570-1048586", 1048570, 1048587),
    ],
)
async def test_one_range_is_given(held: Any, asked: str, first: int, after: int):
    answered = await held.get(FILE, Range=asked)

    assert answered.status == 206
    assert answered.body == DATA[first:after]
    assert answered.headers["Content-Range"] == f"bytes {first}-{after - 1}/{N}"
    assert answered.headers["Etag"] == TAG


@pytest.mark.parametrize(
    "asked",
    [
        "bytes=3000000-",
        "bytes=5-4",
        "bytes=-0",
        "bytes=0-1,5-6",
        "bytes=",
        "bytes=a-b",
        "items=0-1",
        f"bytes={'9' * 40}-",
    ],
)
async def test_any_other_range_is_not(held: Any, asked: str):
    answered = await held.get(FILE, Range=asked)

    assert answered.status == 416
    assert answered.headers["Content-Range"] == f"bytes */{N}"
    assert answered.headers["Connection"] == "close"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"If_Range": TAG}, 206, id="the same file goes on"),
        pytest.param({"If_Range": '"other"'}, 200, id="case 18: another comes whole, and is never stitched on"),
        pytest.param({"If_Range": f"W/{TAG}"}, 200, id="a weak tag says nothing of bytes"),
        pytest.param({"If_Range": "Mon, 30 Nov 2026 19:12:43 GMT"}, 200, id="a date says nothing of bytes"),
        pytest.param({"If_None_Match": TAG}, 304, id="known already"),
        pytest.param({"If_None_Match": f'"a", W/{TAG}'}, 304, id="known among others"),
        pytest.param({"If_None_Match": '"other"'}, 206, id="not known"),
        pytest.param({"If_Match": '"other"'}, 412, id="only if it were another"),
        pytest.param({"If_Match": TAG}, 206, id="only if it is this one"),
        pytest.param({"If_Modified_Since": "Mon, 30 Nov 2037 19:12:43 GMT"}, 206, id="dates do not count"),
        pytest.param({"If_Unmodified_Since": "Mon, 30 Nov 2000 19:12:43 GMT"}, 206, id="nor these"),
    ],
)
async def test_conditions_are_about_the_sum(held: Any, headers: dict[str, str], status: int):
    answered = await held.get(FILE, Range="bytes=5-9", **headers)

    assert answered.status == status
    if status in {200, 206}:
        assert answered.body == (DATA if status == 200 else DATA[5:10])


async def test_a_compressed_neighbour_is_not_given_in_its_place(held: Any):
    (held.root / "m/1/m.gguf.gz").write_bytes(b"not it")
    await held.becomes(lambda h: h["state"] == "present" and len(h["files"]) == 2)

    answered = await held.get(FILE, Accept_Encoding="gzip, br")

    assert answered.body == DATA
    assert "Content-Encoding" not in answered.headers


async def test_the_manifest_is_what_nodes_check_against(held: Any):
    answered = await held.get("/m/1/")

    canonical = f'[["m.gguf",{N},"{SHA}"]]'
    digest = f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"
    assert answered.json == {
        "schema": 1,
        "name": "m",
        "version": "1",
        "complete": True,
        "bytes": N,
        "digest": digest,
        "files": [{"path": "m.gguf", "size": N, "sha256": SHA}],
    }
    assert (await held.get("/m/1/", If_None_Match=answered.headers["Etag"])).status == 304


@pytest.mark.parametrize(
    "path",
    [
        "/", "/m", "/m/", "/m/1", "/m/2/", "/n/1/", "/m/1/other", "/m/1/m.gguf/", "/m/1//m.gguf", "/m/1/../1/m.gguf",
        "/m/1/%2e%2e/1/m.gguf", "/m/1/..%2f1%2fm.gguf", "/_state/m/1.json", "/_incoming/", "/m/../_state/m/1.json",
        "//m/1/m.gguf", "/m/1/m.gguf%00", "/m/1/M.GGUF", "/m/1/m.gguf;x", "/%6d/1/./m.gguf",
    ],
)  # fmt: skip
async def test_nothing_else_is_there(held: Any, path: str):
    base = urlsplit(held.base)

    assert await asyncio.to_thread(raw_get, str(base.hostname), base.port or 0, path) == 404


def raw_get(host: str, port: int, path: str) -> int:
    """The status of a GET whose path no client has tidied up."""
    connection = http.client.HTTPConnection(host, port, timeout=5)
    connection.putrequest("GET", path, skip_accept_encoding=True)
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_it_is_read_only(held: Any, method: str):
    answered = await held.call(method, held.base + FILE)

    assert answered.status == 405
    assert answered.json["error"]["what"]


async def test_a_request_for_bytes_has_no_body(held: Any):
    assert (await held.call("GET", held.base + FILE, data=b"x" * 10)).status == 400


async def test_an_empty_file_and_one_beyond_four_gigabytes_are_given(held: Any):
    # Case 19: sendfile with 0 bytes, and with offsets of more than 32 bits.
    (held.root / "big/1").mkdir(parents=True)
    (held.root / "big/1/empty.txt").touch()
    with (held.root / "big/1/sparse.txt").open("wb") as file:
        file.write(b"begin")
        file.truncate(5 << 30)
        file.seek(-3, os.SEEK_END)
        file.write(b"end")
    store = Store(held.root, settle_s=0)
    store.make_folders()
    store.open()
    version = store.version("big/1")
    assert version is not None
    for path, stamp in version.listing.files.items():
        # Its sum is beside the point, and would take seconds.
        from llmgw.mirror.records import KeptFile

        store.verified(version, KeptFile(path, stamp.bytes, "0" * 64, stamp))
    port = Port(bytes_app(store), who="it", most=8)
    host, number = await port.open("it", ("127.0.0.1", 0), flag="--listen")
    base = f"http://{host}:{number}/big/1"

    assert (await held.call("GET", f"{base}/empty.txt")).body == b""
    tail = await held.call("GET", f"{base}/sparse.txt", headers={"Range": f"bytes={(5 << 30) - 1_000_000}-"})
    await port.close()

    assert (len(tail.body), tail.body[-3:]) == (1_000_000, b"end")
    assert tail.headers["Content-Range"].endswith(f"/{5 << 30}")


async def test_what_changes_on_the_disk_is_not_given_under_the_old_sum(held: Any):
    (held.root / "m/1/m.gguf").write_bytes(gguf(3_000_000, seed=9))

    assert (await held.get(FILE)).status == 503
    again = await held.get("/m/1/")
    assert (again.status, again.headers["Retry-After"], again.json["complete"]) == (503, "5", False)

    await held.until("present")
    assert hashlib.sha256((await held.get(FILE)).body).hexdigest() != SHA


async def test_what_is_removed_under_a_client_still_arrives_whole(held: Any, tmp_path: Path):
    # An open file outlives its name: nobody gets half of one.
    seen: list[int] = []
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_bytes(here: int) -> None:
        if not seen:
            loop.call_soon_threadsafe(begun.set)
        seen.append(here)

    arriving = asyncio.create_task(
        asyncio.to_thread(download, held.base + FILE, tmp_path / "part", expect_sha256=SHA, on_bytes=on_bytes)
    )
    await begun.wait()
    assert await held.remove() == 204

    assert (await arriving).bytes == N


class TestClients:
    """Bounds on whoever connects."""

    @pytest.fixture
    async def address(self, tmp_path: Path):
        """A port with room for four, on a file that no socket buffer swallows."""
        (tmp_path / "m/1").mkdir(parents=True)
        with (tmp_path / "m/1/m.gguf").open("wb") as file:
            file.write(gguf(100))
            file.truncate(16 << 20)
        store = Store(tmp_path, settle_s=0)
        store.make_folders()
        store.open()
        from llmgw.mirror.verifying import verify_one

        assert verify_one(store, stop=lambda: False)
        port = Port(bytes_app(store, window_s=0.5), who="it", most=4, idle_s=0.5)
        yield await port.open("it", ("127.0.0.1", 0), flag="--listen")
        await port.close()

    @staticmethod
    async def ends(sock: socket.socket, *, within_s: float) -> bytes:
        """What comes until the other side ends the connection."""
        loop, came = asyncio.get_running_loop(), b""
        async with asyncio.timeout(within_s):
            try:
                while more := await loop.sock_recv(sock, 1 << 20):
                    came += more
            except ConnectionError:
                pass
        sock.close()
        return came

    @staticmethod
    def call(address: tuple[str, int], sent: bytes) -> socket.socket:
        sock = socket.create_connection(address)
        sock.sendall(sent)
        sock.setblocking(False)
        return sock

    @pytest.mark.parametrize("sent", [b"", b"GET /m/1/ HTTP/1.1\r\nHost: x\r\nX-Slow: a"])
    async def test_a_connection_without_a_whole_request_is_ended(self, address: tuple[str, int], sent: bytes):
        assert await self.ends(self.call(address, sent), within_s=3) == b""

    async def test_clients_that_take_nothing_are_ended(self, address: tuple[str, int]):
        takers = []
        for _ in range(4):  # all the places there are
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(address)
            sock.sendall(b"GET /m/1/m.gguf HTTP/1.1\r\nHost: x\r\n\r\n")
            takers.append(sock)

        async def status() -> bytes:
            asking = self.call(address, b"GET /m/1/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return (await self.ends(asking, within_s=3))[9:12]

        assert await status() == b"503"
        async with asyncio.timeout(5):
            while await status() != b"200":  # noqa: ASYNC110 - it happens behind a socket
                await asyncio.sleep(0.05)
        for sock in takers:
            sock.close()

    async def test_a_client_that_takes_its_time_is_served_whole(self, address: tuple[str, int]):
        sock = self.call(address, b"GET /m/1/m.gguf HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        came, loop = 0, asyncio.get_running_loop()

        while more := await loop.sock_recv(sock, 1 << 20):
            came += len(more)
            await asyncio.sleep(len(more) / 12e6)  # a line of 12 MB a second: longer than it may be idle

        assert came > 16 << 20
        sock.close()

    async def test_one_connection_too_many_is_told_to_come_back(self, address: tuple[str, int]):
        kept = [self.call(address, b"") for _ in range(4)]

        answered = await self.ends(self.call(address, b"GET /m/1/ HTTP/1.1\r\nHost: x\r\n\r\n"), within_s=3)

        assert answered.startswith(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\n")
        for sock in kept:
            sock.close()

    @pytest.mark.parametrize(
        "sent",
        [
            pytest.param(b"GET /m/1/ HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", id="a long header"),
            pytest.param(b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", id="a long line"),
            pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", id="TLS"),
            pytest.param(
                b"GET /m/1/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", id="two lengths"
            ),
            pytest.param(b"GET /m/1/ HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", id="a space before the colon"),
        ],
    )
    async def test_what_is_no_proper_request_is_answered_400_without_a_traceback(
        self, address: tuple[str, int], sent: bytes, caplog: pytest.LogCaptureFixture
    ):
        answered = await self.ends(self.call(address, sent), within_s=3)

        assert answered.startswith(b"HTTP/1.0 400 Bad Request")
        assert [record for record in caplog.records if record.exc_info] == []
