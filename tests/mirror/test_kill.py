"""GS7 and GS9: a mirror killed at any byte, and one that has no way out."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.mirror import Child, MirrorProcess, Nursery
from fakes.mirror import start as start_process
from fakes.upstream import Answer, Upstream, gguf
from fakes.waiting import until_now

SIZE = 3_000_000
FILES = {f"m-0000{n}-of-00003.gguf": gguf(SIZE, seed=n) for n in (1, 2, 3)}
KILLS = 12


def ask(mirror: Child, upstream: Upstream) -> None:
    files = [
        {"path": path, "url": upstream.base + "/" + path, "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in FILES.items()
    ]
    body = json.dumps({"name": "m", "version": "1", "files": files}).encode()
    request = urllib.request.Request(f"{mirror.api}/v1/models", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status in {200, 202}


def show(mirror: Child | MirrorProcess) -> Any:
    with urllib.request.urlopen(f"{mirror.api}/v1/models", timeout=10) as answer:
        held = json.load(answer)
    return held[0] if held else {"state": "none", "done_bytes": 0}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


def test_killed_at_any_byte_it_goes_on_by_itself_and_the_sums_are_right(
    nursery: Nursery, upstream: Upstream, tmp_path: Path
):
    for path, data in FILES.items():
        upstream.put("/" + path, data, Answer(bytes_per_s=4_000_000))
    dice = random.Random(7)
    version, config = tmp_path / "models/m/1", {"allow_hosts": [upstream.netloc], "spare_bytes": 0}
    mirror = nursery.start(tmp_path / "models", **config)
    ask(mirror, upstream)

    for _ in range(KILLS):
        time.sleep(dice.uniform(0, 0.3))  # where it is then is what this test is about
        mirror.kill()
        assert not version.exists() or whole(version), "what is published is whole at any moment"
        mirror = nursery.start(tmp_path / "models", **config)

    # Nobody asks again: what was under way goes on from its journal.
    until_now(lambda: show(mirror)["state"] == "present", within_s=20)
    assert mirror.end(signal.SIGTERM) == 0
    assert whole(version)
    assert list((tmp_path / "models/_incoming").iterdir()) == []
    # A kill costs what was on its way, and no file twice.
    assert upstream.sent_bytes < 2 * SIZE * len(FILES)


def whole(folder: Path) -> bool:
    return {p.name: p.read_bytes() for p in folder.iterdir()} == FILES


class Trap:
    """A proxy that everything which believes the environment would call."""

    def __init__(self) -> None:
        self._sock = socket.create_server(("127.0.0.1", 0))
        self.calls = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        while True:
            try:
                self._sock.accept()[0].close()
            except OSError:
                return
            self.calls += 1

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._sock.getsockname()[1]}"

    def close(self) -> None:
        self._sock.close()


@pytest.fixture
def trap() -> Iterator[Trap]:
    trap = Trap()
    yield trap
    trap.close()


def test_without_a_way_out_it_starts_at_once_and_calls_nobody(trap: Trap, tmp_path: Path):
    # GS9: an offline installation that calls a hub, and waits for it.
    (tmp_path / "src").mkdir()
    (tmp_path / "src/m.gguf").write_bytes(gguf(100_000))
    env = dict.fromkeys(
        ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "HF_ENDPOINT"), trap.url
    )
    began = time.monotonic()

    mirror = start_process(tmp_path / "models", allow_files=[str(tmp_path / "src")], spare_bytes=0, env=env)

    until_now(lambda: show(mirror)["state"] == "none", within_s=5)
    assert time.monotonic() - began < 10  # on a busy machine; most of it is Python's own start
    body = json.dumps({"name": "m", "version": "1", "from": (tmp_path / "src/m.gguf").as_uri()}).encode()
    request = urllib.request.Request(f"{mirror.api}/v1/models", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=5).close()
    until_now(lambda: show(mirror)["state"] == "present", within_s=5)
    mirror.stop(within_s=5)
    assert trap.calls == 0


def test_told_to_stop_it_ends_within_five_seconds_with_clients_and_fetches_under_way(
    nursery: Nursery, upstream: Upstream, tmp_path: Path
):
    upstream.put("/m.gguf", gguf(SIZE), Answer(stall_after=100_000))
    (tmp_path / "models/big/1").mkdir(parents=True)
    with (tmp_path / "models/big/1/x.txt").open("wb") as file:
        file.truncate(64 << 20)
    mirror = nursery.start(tmp_path / "models", allow_hosts=[upstream.netloc], spare_bytes=0, settle_s=0.05)
    body = json.dumps({"name": "m", "version": "1", "from": f"{upstream.base}/m.gguf"}).encode()
    request = urllib.request.Request(f"{mirror.api}/v1/models", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=5).close()
    host, port = mirror.base.removeprefix("http://").split(":")

    def slow_reader() -> socket.socket | None:
        sock = socket.create_connection((host, int(port)))
        sock.sendall(b"GET /big/1/x.txt HTTP/1.1\r\nHost: x\r\n\r\n")
        if sock.recv(12).endswith(b"200"):
            return sock
        sock.close()
        return None

    reader = until_now(slow_reader)
    idle = socket.create_connection((host, int(port)))
    began = time.monotonic()

    assert mirror.end(signal.SIGTERM) == 0

    assert time.monotonic() - began < 5

    for sock in (reader, idle):
        assert sock is not None
        sock.close()


def test_a_second_mirror_on_one_folder_is_refused_and_a_killed_one_is_not_in_the_way(nursery: Nursery, tmp_path: Path):
    first = nursery.start(tmp_path / "models")

    with pytest.raises(RuntimeError) as refused:
        start_process(tmp_path / "models")
    assert f"{tmp_path}/models is served by another mirror already" in str(refused.value)
    assert f"process {first.pid} runs on it" in str(refused.value)
    assert "Traceback" not in str(refused.value)

    first.kill()
    assert nursery.start(tmp_path / "models").end(signal.SIGTERM) == 0


def test_a_port_in_use_is_said_with_who_has_it(nursery: Nursery, tmp_path: Path):
    first = nursery.start(tmp_path / "one")
    host, port = first.api.removeprefix("http://").split(":")

    with pytest.raises(RuntimeError) as refused:
        start_process(tmp_path / "two", api=(host, int(port)))
    first.end(signal.SIGTERM)

    assert f"error: the mirror's management API cannot listen on {host}:{port}" in str(refused.value)
    assert f"(pid {first.pid})" in str(refused.value)
    assert "next: stop it, or give another port with --api" in str(refused.value)
    assert "Traceback" not in str(refused.value)


def test_what_one_process_left_half_written_is_put_aside(nursery: Nursery, tmp_path: Path):
    empty = b'{"request": {"name": "m", "version": "1"}}'
    strange = (
        b'{"request": {"name": "m", "version": "1", "files": [{"path": "a.gguf", "url": "file:///a"}]},'
        b' "done": [{"path": "b.gguf", "bytes": 1, "sha256": ""}]}'
    )
    elsewhere = b'{"request": {"name": "m", "version": "1", "files": [{"path": "../a.gguf", "url": "file:///a"}]}}'
    left = [None, b'{"request": {"name"', b"[]", b"[" * 200_000, empty, strange, elsewhere]
    for name, journal in ((f"0f.{n}", journal) for n, journal in enumerate(left)):
        folder = tmp_path / "models/_incoming" / name
        (folder / "tree").mkdir(parents=True)
        (folder / "tree/m.gguf").write_bytes(b"x")
        if journal is not None:
            (folder / "journal.json").write_bytes(journal)

    mirror = nursery.start(tmp_path / "models")

    assert show(mirror)["state"] == "none"
    mirror.end(signal.SIGTERM)
    assert len(list((tmp_path / "models/_quarantine").iterdir())) == len(left)
    assert list((tmp_path / "models/_incoming").iterdir()) == []
