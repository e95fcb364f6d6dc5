"""One file fetched, whatever its source does on the way. Case numbers are those seen at peers."""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.upstream import CERTIFICATE, Answer, Upstream, gguf
from llmgw_agent.fetch.download import Connections, DownloadCancelled, Downloaded, DownloadFailed, download

DATA = gguf(3_000_000)
SHA = hashlib.sha256(DATA).hexdigest()
EMPTY = hashlib.sha256(b"").hexdigest()
WHOLE = Downloaded(len(DATA), SHA)
KNOWN = {"expect_bytes": len(DATA), "expect_sha256": SHA}


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "m.gguf.part"


def fetch(url: str, part: Path, **more: Any) -> Downloaded:
    return download(url, part, **{"backoff_s": 0.01, "stall_s": 5.0, **more})


@pytest.mark.parametrize(
    ("answers", "ranges"),
    [
        pytest.param([Answer()], [None], id="as it should be"),
        pytest.param([Answer(cut_after=1_000_000), Answer()], [None, "bytes=1000000-"], id="a cut is gone on from"),
        pytest.param(
            [Answer(cut_after=1_000_000), Answer(cut_after=500_000), Answer()],
            [None, "bytes=1000000-", "bytes=1500000-"],
            id="and another",
        ),
        pytest.param(
            [Answer(cut_after=1_000_000), Answer(whole=True)],
            [None, "bytes=1000000-"],
            id="case 3: 200 to a range begins again",
        ),
        pytest.param(
            [Answer(cut_after=1_000_000), Answer(shifted=True), Answer()],
            [None, "bytes=1000000-", None],
            id="another range than asked for is not taken, and not asked for again",
        ),
        pytest.param(
            [Answer(cut_after=1_000_000), Answer(status=416), Answer()],
            [None, "bytes=1000000-", None],
            id="416 in the middle begins again",
        ),
        pytest.param([Answer(no_length=True)], [None], id="case 2: no Content-Length"),
        pytest.param(
            [Answer(no_length=True, cut_after=1_000_000), Answer()],
            [None, "bytes=1000000-"],
            id="without a length, an early end is known by the size expected",
        ),
        pytest.param([Answer(chunked=True)], [None], id="chunked"),
        pytest.param(
            [Answer(chunked=True, cut_after=1_000_000), Answer(chunked=True)],
            [None, "bytes=1000000-"],
            id="chunked and cut",
        ),
        pytest.param(
            [Answer(flipped=2_000_000), Answer()], [None, None], id="case 11: a wrong sum once is fetched whole again"
        ),
        pytest.param([Answer(status=503), Answer(status=429), Answer()], [None, None, None], id="busy, then not"),
        pytest.param(
            [Answer(headers={"Content-Type": "text/html"})],
            [None],
            id="a wrong type with the right size is looked at by its sum",
        ),
    ],
)
def test_it_ends_with_the_right_file(upstream: Upstream, part: Path, answers: list[Answer], ranges: list[str | None]):
    url = upstream.put("/m.gguf", DATA, *answers)

    assert fetch(url, part, **KNOWN) == WHOLE

    assert part.read_bytes() == DATA
    assert upstream.ranges() == ranges


@pytest.mark.parametrize(
    ("answers", "known", "cause", "lasting", "said"),
    [
        pytest.param([Answer(status=404)], KNOWN, "not_found", True, "it answers 404 Not Found", id="not there"),
        pytest.param([Answer(status=401)], KNOWN, "forbidden", True, "it answers 401 Unauthorized", id="gated"),
        pytest.param([Answer(status=500)], KNOWN, "upstream", False, "it answers 500", id="broken for good"),
        pytest.param([Answer(status=204)], KNOWN, "upstream", True, "it answers 204", id="an answer that is none"),
        pytest.param(
            [Answer(page=b"x" * 635)],
            KNOWN,
            "upstream",
            False,
            "it sends 635 bytes of text/html in place of 3.0 MB",
            id="case 4: an error page",
        ),
        pytest.param(
            [Answer(page=b"x" * 635, headers={"Content-Length": "", "Connection": "close"})],
            {},
            "upstream",
            False,
            "it sends 635 bytes of text/html in place of the file",
            id="case 4: a page without a length, nothing known",
        ),
        pytest.param(
            [Answer(flipped=0), Answer(flipped=1)],
            KNOWN,
            "digest",
            True,
            f"where {SHA} was expected",
            id="case 11: a wrong sum twice",
        ),
        pytest.param(
            [Answer()],
            {"expect_bytes": len(DATA) + 1},
            "size",
            True,
            "it has 3000000 bytes there, and 3000001 were expected",
            id="another size",
        ),
        pytest.param(
            [Answer(chunked=True)],
            {"expect_bytes": len(DATA) - 1},
            "size",
            True,
            "it sends more than the 3.0 MB expected",
            id="more than expected, said by nobody",
        ),
        pytest.param(
            [Answer(no_length=True, cut_after=1000)],
            {"expect_bytes": len(DATA)},
            "size",
            False,
            "it ends after 6.0 kB of 3.0 MB",
            id="less than expected, every time",
        ),
        pytest.param([Answer(no_length=True, cut_after=0)], {}, "size", True, "0 bytes came", id="case 12: nothing"),
        pytest.param(
            [Answer(headers={"Content-Encoding": "gzip"})],
            KNOWN,
            "upstream",
            True,
            "it compresses the file",
            id="compressed",
        ),
        pytest.param(
            [Answer(status=302, headers={"Location": "/m.gguf"})],
            KNOWN,
            "upstream",
            True,
            "more than 5 times",
            id="in a circle",
        ),
        pytest.param(
            [Answer(status=302, headers={"Location": "file:///etc/passwd"})],
            KNOWN,
            "upstream",
            True,
            "leads to no web address",
            id="redirected to a file",
        ),
        pytest.param([Answer(status=302)], KNOWN, "upstream", True, "leads to no web address", id="redirected nowhere"),
        pytest.param([Answer(silent=True)], {"stall_s": 0.4}, "unreachable", False, "it fell silent", id="no answer"),
    ],
)
def test_it_fails_with_a_class_and_a_sentence(
    upstream: Upstream, part: Path, answers: list[Answer], known: dict[str, Any], cause: str, lasting: bool, said: str
):
    url = upstream.put("/m.gguf", DATA, *answers)

    with pytest.raises(DownloadFailed) as failed:
        fetch(url, part, **known)

    assert (failed.value.cause, failed.value.lasting) == (cause, lasting)
    assert said in failed.value.why
    assert failed.value.do


def test_both_sums_are_said_when_they_differ_from_each_other(upstream: Upstream, part: Path):
    url = upstream.put("/m.gguf", DATA, Answer(flipped=0), Answer(flipped=1))

    with pytest.raises(DownloadFailed) as failed:
        fetch(url, part, **KNOWN)

    wrong = [hashlib.sha256(DATA[:at] + bytes([DATA[at] ^ 0xFF]) + DATA[at + 1 :]).hexdigest() for at in (0, 1)]
    assert failed.value.why == f"its sha256 is {wrong[1]} ({wrong[0]} the time before) where {SHA} was expected"


def test_after_any_failure_the_next_call_ends_with_the_right_file(upstream: Upstream, part: Path):
    for bad in (Answer(flipped=7), Answer(cut_after=100), Answer(page=b"no"), Answer(chunked=True, cut_after=1000)):
        url = upstream.put("/m.gguf", DATA, bad)
        with pytest.raises(DownloadFailed):
            fetch(url, part, **KNOWN)
    upstream.put("/m.gguf", DATA)

    assert fetch(url, part, **KNOWN) == WHOLE


def test_a_part_as_long_as_expected_is_checked_without_a_request(upstream: Upstream, part: Path):
    # Case 1: asking for `bytes=<size>-` is answered 416 for ever.
    part.write_bytes(DATA)

    assert fetch(upstream.put("/m.gguf", DATA), part, **KNOWN) == WHOLE
    assert upstream.asked == []


def test_a_part_that_is_whole_without_a_known_size_takes_one_416(upstream: Upstream, part: Path):
    part.write_bytes(DATA)

    assert fetch(upstream.put("/m.gguf", DATA), part, expect_sha256=SHA) == WHOLE
    assert upstream.ranges() == [f"bytes={len(DATA)}-"]


def test_a_part_longer_than_expected_is_begun_again(upstream: Upstream, part: Path):
    part.write_bytes(DATA + b"more")

    assert fetch(upstream.put("/m.gguf", DATA), part, **KNOWN) == WHOLE
    assert upstream.ranges() == [None]


def test_a_part_that_belongs_to_something_else_is_found_by_its_sum_and_begun_again(upstream: Upstream, part: Path):
    part.write_bytes(b"y" * 1_000_000)

    assert fetch(upstream.put("/m.gguf", DATA), part, **KNOWN) == WHOLE
    assert upstream.ranges() == ["bytes=1000000-", None]


def test_a_part_without_a_sum_to_check_it_by_is_begun_again(upstream: Upstream, part: Path):
    # Upstream may have changed since, or a power cut may have lost some of it.
    part.write_bytes(b"y" * 1_000_000)

    assert fetch(upstream.put("/m.gguf", DATA), part, expect_bytes=len(DATA)) == WHOLE
    assert upstream.ranges() == [None]


def test_nor_is_one_believed_that_is_as_long_as_expected(upstream: Upstream, part: Path):
    part.write_bytes(b"y" * len(DATA))

    assert fetch(upstream.put("/m.gguf", DATA), part, expect_bytes=len(DATA)) == WHOLE


def test_without_a_sum_a_cut_is_gone_on_from_only_while_the_file_stays_the_same(upstream: Upstream, part: Path):
    other = gguf(len(DATA), seed=1)
    url = upstream.put("/m.gguf", DATA, Answer(cut_after=1_000_000), Answer())

    def change(here: int) -> None:
        if here >= 900_000:
            upstream.files["/m.gguf"] = other

    # If-Range carries the first answer's ETag, so the new file comes whole.
    assert fetch(url, part, on_bytes=change).sha256 == hashlib.sha256(other).hexdigest()
    assert part.read_bytes() == other


def test_a_connection_that_falls_silent_is_dropped_and_gone_on_from(upstream: Upstream, part: Path):
    # Case 10: one connection dies without an end, and the bar stands at 99 %.
    url = upstream.put("/m.gguf", DATA, Answer(stall_after=1_000_000), Answer())

    assert fetch(url, part, stall_s=0.5, **KNOWN) == WHOLE
    assert upstream.ranges() == [None, "bytes=1000000-"]


def test_a_source_that_dies_every_few_bytes_is_given_up(upstream: Upstream, part: Path):
    url = upstream.put("/m.gguf", DATA, Answer(cut_after=10))

    with pytest.raises(DownloadFailed, match="could not be fetched"):
        fetch(url, part, **KNOWN)

    assert len(upstream.asked) == 6


def test_a_source_that_has_given_nothing_is_given_up_sooner(upstream: Upstream, part: Path):
    with pytest.raises(DownloadFailed):
        fetch(upstream.put("/m.gguf", DATA, Answer(status=500)), part)

    assert len(upstream.asked) == 3


def test_a_source_that_gives_megabytes_between_its_faults_is_not(upstream: Upstream, part: Path):
    big = gguf(12_000_000)
    url = upstream.put("/m.gguf", big, *[Answer(cut_after=1_100_000)] * 10, Answer())

    assert fetch(url, part, expect_sha256=hashlib.sha256(big).hexdigest()).bytes == len(big)


def test_a_refused_connection_is_an_error_within_seconds(part: Path):
    # GS7: a source that is not there fails in seconds, with its class.
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        began = time.monotonic()

        with pytest.raises(DownloadFailed) as failed:
            fetch(f"http://127.0.0.1:{nobody.getsockname()[1]}/m.gguf", part)

    assert (failed.value.cause, failed.value.lasting) == ("unreachable", False)
    assert failed.value.why == "no connection to 127.0.0.1: connection refused"
    assert time.monotonic() - began < 20


def test_what_an_upstream_asks_for_in_retry_after_is_waited(upstream: Upstream, part: Path):
    # Case 16: many small files, and an upstream that counts them.
    url = upstream.put("/m.gguf", DATA, Answer(status=429, headers={"Retry-After": "1"}), Answer())
    began = time.monotonic()

    assert fetch(url, part, **KNOWN) == WHOLE
    assert time.monotonic() - began >= 1


def test_headers_of_the_caller_stop_where_the_origin_changes(part: Path):
    # Case 15: a token forwarded to a CDN leaks, or is answered 400.
    with Upstream() as hub, Upstream("127.0.0.2") as cdn:
        cdn.put("/blob", DATA)
        url = hub.put("/m.gguf", b"", Answer(status=302, headers={"Location": "/here"}))
        hub.put("/here", b"", Answer(status=307, headers={"Location": f"{cdn.base}/blob?signature=s3cret"}))
        hops: list[str] = []

        assert fetch(url, part, headers={"Authorization": "Bearer t0ken"}, check_hop=hops.append, **KNOWN) == WHOLE

        assert [asked.headers.get("Authorization") for asked in hub.asked] == ["Bearer t0ken"] * 2
        assert [asked.headers.get("Authorization") for asked in cdn.asked] == [None]
        assert hops == [url, f"{hub.base}/here", f"{cdn.base}/blob?signature=s3cret"]


def test_a_hop_that_is_refused_is_never_connected_to(part: Path):
    with Upstream() as hub, Upstream("127.0.0.2") as other:
        url = hub.put("/m.gguf", b"", Answer(status=302, headers={"Location": f"{other.base}/m.gguf"}))

        def check(hop: str) -> None:
            if "127.0.0.2" in hop:
                raise DownloadFailed("no", why="not there", do="nothing", cause="refused", lasting=True)

        with pytest.raises(DownloadFailed, match="no"):
            fetch(url, part, check_hop=check)

        assert other.asked == []


def test_errors_quote_no_query_and_no_userinfo(upstream: Upstream, part: Path):
    upstream.put("/m.gguf", DATA, Answer(status=404))
    url = f"http://ana:s3cret@{upstream.netloc}/m.gguf?X-Signature=s3cret"

    with pytest.raises(DownloadFailed) as failed:
        fetch(url, part)

    assert "s3cret" not in str(failed.value)
    assert failed.value.what == f"{upstream.base}/m.gguf could not be fetched"


@pytest.mark.parametrize("url", ["ftp://h/x", "http://[::1/x", "http://", "m.gguf", "http://h:99999/x"])
def test_what_is_no_url_is_refused(url: str, part: Path):
    with pytest.raises(DownloadFailed) as failed:
        fetch(url, part)

    assert failed.value.cause in {"refused", "unreachable"}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(silent=True), id="while an answer is waited for"),
        pytest.param(Answer(stall_after=100_000), id="while bytes are waited for"),
        pytest.param(Answer(no_length=True, stall_after=100_000), id="and where that looks like the end of the file"),
        pytest.param(Answer(bytes_per_s=100_000), id="while bytes come"),
        pytest.param(Answer(status=503, headers={"Retry-After": "60"}), id="while another try is waited for"),
    ],
)
def test_a_cancel_is_honoured_within_a_second(upstream: Upstream, part: Path, answer: Answer):
    cancelled = threading.Event()
    asked: list[float] = []

    def cancel() -> None:
        while not upstream.asked:
            time.sleep(0.01)
        time.sleep(0.1)
        asked.append(time.monotonic())
        cancelled.set()

    threading.Thread(target=cancel).start()
    with pytest.raises(DownloadCancelled):
        fetch(upstream.put("/m.gguf", DATA, answer), part, cancelled=cancelled.is_set, stall_s=60.0)

    assert time.monotonic() - asked[0] < 20


def test_a_cancel_is_honoured_while_a_host_does_not_answer_a_connection(part: Path):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        callers = [socket.socket() for _ in range(4)]
        for caller in callers:  # fill its queue, so that the kernel drops what comes next
            caller.setblocking(False)
            caller.connect_ex(full.getsockname())
        deadline = time.monotonic() + 0.5

        with pytest.raises(DownloadCancelled):
            fetch(f"http://127.0.0.1:{full.getsockname()[1]}/", part, cancelled=lambda: time.monotonic() > deadline)

        assert time.monotonic() - deadline < 20
        for caller in callers:
            caller.close()


def test_progress_is_what_is_here_and_falls_when_a_file_is_begun_again(upstream: Upstream, part: Path):
    url = upstream.put("/m.gguf", DATA, Answer(cut_after=1_000_000), Answer(whole=True))
    seen: list[int] = []
    totals: list[int] = []

    fetch(url, part, on_bytes=seen.append, on_total=totals.append, **KNOWN)

    again = seen.index(0)
    assert seen[again - 1] == 1_000_000
    assert seen[-1] == len(DATA)
    assert set(totals) == {len(DATA)}


def test_the_first_bytes_are_judged_before_the_rest_comes(upstream: Upstream, part: Path):
    url = upstream.put("/m.gguf", DATA, Answer(stall_after=64))

    def check(head: bytes) -> None:
        assert head == DATA[:64]
        raise DownloadFailed("no", why="no weights", do="nothing", cause="not_weights", lasting=True)

    with pytest.raises(DownloadFailed, match="no"):
        fetch(url, part, check_head=check)

    assert part.stat().st_size == 0, "what was refused is not gone on from by the next call"


def test_a_part_whose_first_bytes_are_refused_is_begun_again_and_not_refused_for_ever(upstream: Upstream, part: Path):
    part.write_bytes(b"<html>" * 1000)

    def check(head: bytes) -> None:
        if head != DATA[:64]:
            raise DownloadFailed("no", why="no weights", do="nothing", cause="not_weights", lasting=True)

    assert fetch(upstream.put("/m.gguf", DATA), part, check_head=check, **KNOWN) == WHOLE
    assert upstream.ranges() == [None]


def test_files_of_one_host_share_a_connection(upstream: Upstream, tmp_path: Path):
    pool = Connections()
    for n in range(3):
        fetch(upstream.put(f"/{n}", DATA), tmp_path / f"{n}", pool=pool, **KNOWN)
    pool.clear()

    assert upstream.connections == 1


class TestTls:
    """The same over https."""

    @pytest.fixture
    def secure(self) -> Iterator[Upstream]:
        with Upstream(tls=True) as server:
            yield server

    @pytest.fixture
    def trusting(self) -> Iterator[Connections]:
        pool = Connections(ssl_context=ssl.create_default_context(cafile=CERTIFICATE))
        yield pool
        pool.clear()

    def test_it_is_fetched_and_gone_on_from(self, secure: Upstream, trusting: Connections, part: Path):
        url = secure.put("/m.gguf", DATA, Answer(cut_after=1_000_000), Answer())

        assert fetch(url, part, pool=trusting, **KNOWN) == WHOLE
        assert secure.ranges() == [None, "bytes=1000000-"]

    def test_a_certificate_that_nobody_vouches_for_is_said_and_not_tried_again(self, secure: Upstream, part: Path):
        with pytest.raises(DownloadFailed) as failed:
            fetch(secure.put("/m.gguf", DATA), part)

        assert (failed.value.cause, failed.value.lasting) == ("unreachable", False)
        assert failed.value.why == "its certificate: self-signed certificate"
        assert (secure.connections, secure.asked) == (1, [])

    def test_a_name_that_is_not_the_certificates_is_said(self, trusting: Connections, part: Path):
        with Upstream("127.0.0.2", tls=True) as other, pytest.raises(DownloadFailed) as failed:
            fetch(other.put("/m.gguf", DATA), part, pool=trusting)

        assert "its certificate: IP address mismatch" in failed.value.why

    def test_it_is_not_left_for_plain_http(
        self, secure: Upstream, upstream: Upstream, trusting: Connections, part: Path
    ):
        url = secure.put("/m.gguf", DATA, Answer(status=302, headers={"Location": upstream.put("/m.gguf", DATA)}))

        with pytest.raises(DownloadFailed) as failed:
            fetch(url, part, pool=trusting, **KNOWN)

        assert failed.value.why == "it answers 302 and leads to no web address, or away from https"
        assert upstream.asked == []

    def test_a_cancel_is_honoured_while_bytes_are_waited_for(self, secure: Upstream, trusting: Connections, part: Path):
        url = secure.put("/m.gguf", DATA, Answer(stall_after=100_000))
        deadline = time.monotonic() + 0.5

        with pytest.raises(DownloadCancelled):
            fetch(url, part, pool=trusting, cancelled=lambda: time.monotonic() > deadline, stall_s=60.0)

        assert time.monotonic() - deadline < 20
        assert part.read_bytes() == DATA[:100_000], "what was cut is no ciphertext"

    def test_a_cancel_is_honoured_while_a_host_does_not_shake_hands(self, part: Path):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            deadline = time.monotonic() + 0.5

            with pytest.raises(DownloadCancelled):
                fetch(
                    f"https://127.0.0.1:{silent.getsockname()[1]}/",
                    part,
                    cancelled=lambda: time.monotonic() > deadline,
                    stall_s=60.0,
                )

            assert time.monotonic() - deadline < 20


class TestFromFiles:
    """file:// sources, in the same words."""

    def test_it_is_copied_and_hashed(self, tmp_path: Path, part: Path):
        (tmp_path / "a b.gguf").write_bytes(DATA)

        assert fetch((tmp_path / "a b.gguf").as_uri(), part, **KNOWN) == WHOLE
        assert part.read_bytes() == DATA

    def test_it_is_gone_on_from(self, tmp_path: Path, part: Path):
        (tmp_path / "m.gguf").write_bytes(DATA)
        part.write_bytes(DATA[:1_000_000])
        seen: list[int] = []

        assert fetch((tmp_path / "m.gguf").as_uri(), part, on_bytes=seen.append, **KNOWN) == WHOLE
        assert seen[0] == 1_000_000

    @pytest.mark.parametrize(
        ("name", "known", "cause", "said"),
        [
            ("missing", {}, "not_found", "there is no such file"),
            ("folder", {}, "not_found", "it is not a regular file"),
            ("pipe", {}, "not_found", "it is not a regular file"),
            ("empty", {}, "size", "0 bytes came"),
            ("m.gguf", {"expect_bytes": 5}, "size", "it has 3000000 bytes there, and 5 were expected"),
            ("m.gguf", {"expect_sha256": EMPTY}, "digest", f"its sha256 is {SHA} where {EMPTY} was expected"),
        ],
    )
    def test_it_fails_with_a_class_and_a_sentence(
        self, tmp_path: Path, part: Path, name: str, known: dict[str, Any], cause: str, said: str
    ):
        (tmp_path / "m.gguf").write_bytes(DATA)
        (tmp_path / "empty").touch()
        (tmp_path / "folder").mkdir()
        os.mkfifo(tmp_path / "pipe")

        with pytest.raises(DownloadFailed) as failed:
            fetch((tmp_path / name).as_uri(), part, **known)

        assert (failed.value.cause, failed.value.lasting) == (cause, True)
        assert said in failed.value.why

    def test_what_was_opened_is_asked_about_and_not_only_its_name(self, tmp_path: Path, part: Path):
        (tmp_path / "secret").write_bytes(DATA)
        (tmp_path / "link.gguf").symlink_to(tmp_path / "secret")
        hops: list[str] = []

        fetch((tmp_path / "link.gguf").as_uri(), part, check_hop=hops.append)

        assert hops == [(tmp_path / "link.gguf").as_uri(), (tmp_path / "secret").as_uri()]


def test_a_part_is_never_written_through_a_link(upstream: Upstream, tmp_path: Path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "part").symlink_to(tmp_path / "precious")

    with pytest.raises(DownloadFailed) as failed:
        fetch(upstream.put("/m.gguf", DATA), tmp_path / "part")

    assert failed.value.cause == "disk"
    assert (tmp_path / "precious").read_text() == "mine"
