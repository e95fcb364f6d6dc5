"""A server that is away, slow, busy, or will not: what is said, how long it takes, and what stays."""

from __future__ import annotations

import socket
import stat
import threading
import time
from pathlib import Path

import pytest

from fakes.git_http import Fault, GitServer
from fakes.real_git import Fleet
from llmgw.errors import OperatorError, Refused, Unreachable
from llmgw.sources.access import Access, Limits
from llmgw.sources.git import Source, open_source
from llmgw.sources.wire import Throttled

pytestmark = pytest.mark.needs_git

SECRET = "s3cr3t-t0ken"
QUICK = Limits(connect_s=4, read_s=1, total_s=4)


def follow(url: str, state: Path, token_file: Path | None = None, limits: Limits = QUICK) -> Source:
    return open_source(url, branch="main", state=state, access=Access(token_file=token_file, limits=limits))


@pytest.fixture
def source(fleet: Fleet, server: GitServer, tmp_path: Path):
    """Polled once, with limits that a test can wait for."""
    made = follow(server.url("fleet.git"), tmp_path / "state")
    made.poll()
    yield made
    made.close()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(SECRET + "\n")
    return path


NO_RIGHT = "the token is missing, wrong, or has not this right"
A_PAGE = Fault(status=200, headers={"Content-Type": "text/html"}, body=b"<html>log in")
IN_WORDS = b"001e# service=git-upload-pack\n00000014ERR tired of it\n"
IN_CIRCLES = Fault(status=302, headers={"Location": "/elsewhere"})


def refs(body: bytes) -> Fault:
    """An answer that says it is a list of refs."""
    return Fault(status=200, headers={"Content-Type": "application/x-git-upload-pack-advertisement"}, body=body)


@pytest.mark.parametrize(
    ("fault", "error", "why"),
    [
        pytest.param(Fault(status=401), Refused, f"the server answers 401: {NO_RIGHT}", id="401"),
        pytest.param(Fault(status=403), Refused, f"the server answers 403: {NO_RIGHT}", id="403"),
        pytest.param(Fault(status=404), Refused, "the server answers 404, as many do for a private one", id="404"),
        pytest.param(Fault(status=429), Throttled, "the server answers 429", id="429"),
        pytest.param(Fault(status=503, headers={"Retry-After": "7"}), Throttled, "answers 503", id="503 with a time"),
        pytest.param(Fault(status=403, headers={"Retry-After": "7"}), Throttled, "answers 403", id="403 with a time"),
        pytest.param(Fault(status=503), Unreachable, "the server answers 503", id="503"),
        pytest.param(Fault(status=500), Unreachable, "the server answers 500", id="500"),
        pytest.param(Fault(status=418), Refused, "the server answers 418", id="418"),
        pytest.param(Fault(hang=True), Unreachable, "it stopped answering", id="hangs"),
        pytest.param(Fault(cut_after=0), Unreachable, "the connection broke", id="cut at once"),
        pytest.param(Fault(cut_after=30), Unreachable, "the connection broke", id="cut in the middle"),
        pytest.param(Fault(trickle_s=0.05), Unreachable, "it did not finish within 4 s", id="a byte now and then"),
        pytest.param(A_PAGE, Refused, "what answers there is not git over HTTP", id="a page"),
        pytest.param(IN_CIRCLES, Unreachable, "it redirects in circles", id="redirects in circles"),
        pytest.param(refs(b"zzzz not git"), Unreachable, "what it sends makes no sense", id="nonsense"),
        pytest.param(refs(IN_WORDS), Unreachable, "tired of it", id="an error in git's own words"),
    ],
)
def test_each_way_to_fail_has_its_sentence_in_bounded_time_and_loses_nothing(
    fleet: Fleet, server: GitServer, source: Source, fault: Fault, error: type[OperatorError], why: str
):
    before = source.held()
    commit = fleet.push({"catalog/b.yaml": b"name: b\n"})
    server.fault = fault
    started = time.monotonic()

    with pytest.raises(error) as raised:
        source.poll()

    assert time.monotonic() - started < 20
    assert type(raised.value) is error
    assert why in raised.value.why
    assert raised.value.do
    assert source.held() == before
    server.fault = None
    assert source.poll().commit == commit


@pytest.mark.parametrize(
    ("header", "after_s"),
    [("3600", 600.0), ("7", 7.0), ("-1", None), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("", None), ("nan", None)],
)
def test_case_10_a_pause_that_is_asked_for_is_told_and_never_slept(
    server: GitServer, source: Source, header: str, after_s: float | None
):
    server.fault = Fault(status=429, headers={"Retry-After": header})
    server.asked.clear()
    started = time.monotonic()

    with pytest.raises(Throttled) as raised:
        source.poll()

    assert time.monotonic() - started < 5
    assert raised.value.after_s == after_s
    assert server.requests == 1


def test_nothing_is_asked_twice_in_one_poll(server: GitServer, source: Source):
    server.asked.clear()
    server.fault = Fault(cut_after=0)

    with pytest.raises(Unreachable):
        source.poll()

    assert server.requests == 1


def test_case_4_a_poll_that_hangs_does_not_hold_up_the_next_one(fleet: Fleet, server: GitServer, source: Source):
    server.fault = Fault(hang=True, times=1)
    commit = fleet.push({"catalog/b.yaml": b"name: b\n"})
    found = []

    def poll() -> None:
        try:
            found.append(source.poll().commit)
        except Unreachable as e:
            found.append(e.why)

    polls = [threading.Thread(target=poll) for _ in range(3)]
    for each in polls:
        each.start()
    for each in polls:
        each.join(10)

    assert sorted(found) == sorted(["it stopped answering", commit, commit])


def test_a_port_where_nothing_listens_is_unreachable(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/fleet.git"
    source = follow(url, tmp_path / "state")

    with pytest.raises(Unreachable) as raised:
        source.poll()

    assert raised.value.why == "nothing answers at its address"
    assert source.held() is None
    source.close()


def test_a_name_that_resolves_to_nothing_is_unreachable(tmp_path: Path):
    source = follow("http://no-such-host.invalid/fleet.git", tmp_path / "state")

    with pytest.raises(Unreachable) as raised:
        source.poll()

    assert raised.value.why in ("its name cannot be resolved", "nothing answers at its address")
    source.close()


def test_https_where_there_is_none_is_unreachable(fleet: Fleet, server: GitServer, tmp_path: Path):
    source = follow(server.url("fleet.git").replace("http://", "https://"), tmp_path / "state")

    with pytest.raises(Unreachable) as raised:
        source.poll()

    assert raised.value.why == "what answers there does not speak TLS as we do"
    source.close()


def test_a_token_is_read_at_each_poll(fleet: Fleet, server: GitServer, token_file: Path, tmp_path: Path):
    server.token = SECRET
    source = follow(server.url("fleet.git"), tmp_path / "state", token_file)
    source.poll()
    server.token = "rotated"
    with pytest.raises(Refused, match="refused us"):
        source.poll()

    token_file.write_text("rotated")

    assert source.poll().commit == fleet.clone("rev-parse", "HEAD")
    source.close()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(b"", "it is empty, or has more than one line", id="empty"),
        pytest.param(b"one\ntwo\n", "it is empty, or has more than one line", id="two lines"),
        pytest.param(b"\xff\xfe", "it is not a token", id="not text"),
        pytest.param(None, "no such file or directory", id="not there"),
    ],
)
def test_a_token_file_without_a_token_is_refused(
    server: GitServer, token_file: Path, tmp_path: Path, content: bytes | None, why: str
):
    token_file.write_bytes(content) if content is not None else token_file.unlink()
    source = follow(server.url("fleet.git"), tmp_path / "state", token_file)

    with pytest.raises(Refused) as refused:
        source.poll()

    assert refused.value.why == why
    assert server.requests == 0
    source.close()


def test_a_password_in_the_address_is_refused_and_not_repeated(tmp_path: Path):
    with pytest.raises(Refused) as refused:
        follow(f"https://ana:{SECRET}@host/fleet.git", tmp_path / "state")

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(status=401), id="401"),
        pytest.param(Fault(status=404), id="404"),
        pytest.param(Fault(status=429), id="429"),
        pytest.param(Fault(status=500), id="500"),
        pytest.param(Fault(cut_after=10), id="cut"),
        pytest.param(Fault(hang=True), id="hangs"),
        pytest.param(IN_CIRCLES, id="redirects in circles"),
        pytest.param(A_PAGE, id="a page"),
        pytest.param(None, id="all well"),
    ],
)
def test_nothing_secret_is_in_an_error_a_log_or_a_file(
    fleet: Fleet,
    server: GitServer,
    token_file: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    fault: Fault | None,
):
    caplog.set_level(0)
    url = server.url("fleet.git").replace("127.0.0.1", "ana@127.0.0.1")
    source = follow(url, tmp_path / "state", token_file)
    server.fault = fault
    said = source.shown

    try:
        source.poll()
    except OperatorError as e:
        said += str(e) + e.sentence
    source.close()

    kept = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert any("authorization" in headers for headers in server.seen)
    for text in (said, caplog.text, kept.decode("latin-1")):
        assert SECRET not in text
    assert "ana" not in said


def test_a_token_does_not_follow_a_redirect_to_another_host(fleet: Fleet, token_file: Path, tmp_path: Path):
    with GitServer(tmp_path) as first, GitServer(tmp_path) as second:
        first.fault = Fault(status=302, headers={"Location": second.url("fleet.git/info/refs?service=git-upload-pack")})
        source = follow(first.url("fleet.git"), tmp_path / "state", token_file)

        assert source.poll().commit == fleet.clone("rev-parse", "HEAD")

        source.close()
        assert "authorization" in first.seen[0]
        assert second.seen
        assert not any("authorization" in headers for headers in second.seen)


def test_a_state_folder_that_cannot_be_written_is_refused(fleet: Fleet, server: GitServer, tmp_path: Path):
    (tmp_path / "state").write_text("a file")

    with pytest.raises(Refused) as refused:
        follow(server.url("fleet.git"), tmp_path / "state")

    assert "--state" in refused.value.do


def test_a_copy_can_be_read_by_its_owner_alone(source: Source, tmp_path: Path):
    (home,) = (tmp_path / "state/git").iterdir()

    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_no_thread_outlives_a_poll(server: GitServer, source: Source):
    before = threading.active_count()
    server.fault = Fault(hang=True)
    with pytest.raises(Unreachable):
        source.poll()
    server.closing.set()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        threading.Event().wait(0.01)

    assert threading.active_count() <= before
