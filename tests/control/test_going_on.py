"""What goes wrong beside control, or in it, and is the end of nothing else."""

import asyncio
import logging

import pytest

from control.fleet import AUTHOR, a_control, a_model, a_server, until
from llmgw.control import loop
from llmgw.control.app import ControlConfig, serve
from llmgw.control.follow import Follower
from llmgw.control.guard import Guard
from llmgw.core.condition import Condition
from llmgw.errors import Refused, Unreachable
from llmgw.sources.admission import NotAdmitted
from llmgw.sources.bare import commit_files, make_bare
from llmgw.sources.git import open_source
from llmgw.sources.status_branch import StatusBranch
from llmgw.sources.wire import Throttled


async def serving(site, node):
    """The node, obeying for ever, once it has a replica and the status says so."""
    task = asyncio.create_task(node.serve())
    await until(lambda: "as asked" in site.status().get("README.md", ""))
    return task


async def test_a_pass_that_ends_in_a_bug_leaves_orders_and_table_and_is_said(tmp_path, caplog, monkeypatch):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        node = site.node()
        task = await serving(site, node)
        before, whole = (node.obeyed, dict(node.replicas)), loop.table

        # The last step before anything is sent: what was decided before it must not be sent either.
        def broken(*_):
            raise KeyError("a bug")

        monkeypatch.setattr(loop, "table", broken)
        site.push(m=a_model(replicas=2))
        page = await until(lambda: "internal error" in site.status().get("README.md", "") and site.status())
        site.push(m=a_model(replicas=3))
        live = await site.client("operator", "ana").call("GET", "/v1/status")
        meanwhile = (node.obeyed, dict(node.replicas))
        monkeypatch.setattr(loop, "table", whole)
        await until(lambda: len(node.replicas) == 3)
        await until(lambda: "internal error" not in site.status()["README.md"])
        task.cancel()

    assert meanwhile == before
    assert "internal error: a pass ended with KeyError" in page["summary.yaml"]
    assert "spec:" in page["models/6b/m.yaml"], "what was last good is still there"
    assert b"internal error: a pass ended with KeyError" in live.body
    said = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert len(said) == 1, "once for each kind"


def test_a_guard_lets_through_what_is_no_bug():
    guard = Guard("a turn")

    with guard:
        raise ValueError
    assert guard.trouble.startswith("internal error: a turn ended with ValueError at test_going_on.py:")
    with guard:
        pass
    assert not guard.trouble
    with pytest.raises(asyncio.CancelledError), guard:
        raise asyncio.CancelledError


async def test_a_repository_that_is_away_while_control_settles_is_waited_for(tmp_path):
    files = {"m": a_model(), "server": a_server("n1", "n2")}
    async with a_control(tmp_path, files=files, poll_s=0.2) as site:
        first, second = site.node("n1"), site.node("n2")
        tasks = [asyncio.create_task(first.serve())]
        operator = site.client("operator", "ana")
        site.repo.rename(tmp_path / "away.git")
        await until(lambda: _trouble(operator, "there is no repository"))
        tasks.append(asyncio.create_task(second.serve()))
        await until(lambda: first.replicas or second.replicas)
        (tmp_path / "away.git").rename(site.repo)
        site.push(m=a_model(replicas=2))
        await until(lambda: len({**first.replicas, **second.replicas}) == 2)
        for task in tasks:
            task.cancel()


async def _trouble(operator, what):
    return what in (await operator.call("GET", "/v1/status")).body.decode()


class Away:
    """A repository of which every part can be away, each by itself."""

    def __init__(self, source) -> None:
        self._source, self.parts, self.error = source, set(), Unreachable("it is away", why="it is", do="wait")

    def __getattr__(self, name):
        if name in self.parts:
            raise self.error
        return getattr(self._source, name)


def a_follower(tmp_path, *, local=True, last=None):
    make_bare(
        tmp_path / "r.git",
        {"server.yaml": a_server(), "catalog/m.yaml": a_model()},
        message="1\n",
        author=AUTHOR,
        now=1,
    )
    source = Away(open_source(str(tmp_path / "r.git"), branch="main", state=tmp_path))
    seen = {"running": list, "held": dict, "nodes": list}
    return source, Follower(source, cluster="lab", local=local, last=last, poll_s=30, **seen)


@pytest.mark.parametrize("part", ["poll", "trailers_since"])
async def test_a_look_that_fails_halfway_is_no_look(tmp_path, part):
    source, follower = a_follower(tmp_path)
    found = []
    source.parts = {part}

    await follower.look(found.append)
    assert (found, follower.trouble[:10]) == ([], "it is away")

    source.parts = set()
    await follower.look(found.append)
    assert ([*found[0].wanted.models], follower.trouble) == (["m"], "")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Unreachable("https://git.example did not answer", why="it gave 503", do="wait"), "git_unreachable"),
        (NotAdmitted("commit dddd is not carried out", why="it is not signed", do="sign it"), "not_admitted"),
    ],
)
async def test_a_repository_that_is_away_and_a_commit_that_is_not_admitted_are_problems_of_the_status(
    tmp_path, error, kind
):
    source, follower = a_follower(tmp_path, local=False)
    source.parts, source.error = {"poll"}, error
    await follower.look(lambda _: None)
    (told,) = follower.conditions
    source.parts = set()
    await follower.look(lambda _: None)

    assert told == Condition("repository", f"{error.what}: {error.why}", error.do, kind=kind)
    assert follower.conditions == ()


async def test_a_repository_that_comes_back_was_said_to_be_away_on_the_branch(tmp_path):
    # The status goes to the first place of the repository: here the catalog's branch is gone, and nothing else.
    async with a_control(tmp_path, files={"m": a_model()}, poll_s=0.2) as site:
        task = await serving(site, site.node())
        main = site.repo / "refs/heads/main"
        tip = main.read_bytes()
        main.unlink()
        page = await until(lambda: "- **repository** " in site.status()["README.md"] and site.status())
        main.write_bytes(tip)
        await until(lambda: "as asked" in site.status()["README.md"])
        task.cancel()

    assert "kind: git_unreachable" in page["problems.yaml"]


async def test_case_19_control_never_commits_to_the_branch_that_it_follows(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        task = await serving(site, site.node())
        rolled_back = site.push("roll back", m=a_model(replicas=2))
        await until(lambda: "2 of 2" in site.status()["README.md"])
        task.cancel()

    assert (site.repo / "refs/heads/main").read_text().strip() == rolled_back


async def test_control_does_not_follow_its_own_status(tmp_path):
    with pytest.raises(Refused, match="control does not follow llmgw/status/lab"):
        await serve(ControlConfig(repo="r", cluster="lab", state=tmp_path, branch="llmgw/status/lab"))


async def test_a_key_that_cannot_sign_is_an_error_of_the_start(tmp_path):
    with pytest.raises(Refused, match="the status cannot be signed"):
        await serve(ControlConfig(repo="r", cluster="lab", state=tmp_path, status_sign_key=tmp_path / "absent"))


async def test_where_the_lines_of_commits_cannot_be_read_no_guard_is_lifted(tmp_path):
    source, follower = a_follower(tmp_path)
    found = []
    await follower.look(found.append)
    source.parts = {"trailers_since"}

    await follower.judge_again(found.append)
    assert len(found) == 2
    assert follower.trouble.startswith("it is away")
    source.parts = set()
    await follower.look(found.append)

    assert len(found) == 3, "the same commit is judged once more"
    assert follower.trouble == ""


async def test_a_server_that_asks_to_be_left_alone_is_and_one_that_fails_is_asked_less_often(tmp_path):
    source, follower = a_follower(tmp_path, local=False)
    source.parts = {"poll"}
    waits = []
    for _ in range(7):
        waits.append(follower._wait_s())
        await follower.look(lambda _: None)
    source.error = Throttled("slow down", why="429", do="wait", after_s=3000.0)
    await follower.look(lambda _: None)
    asked = follower._wait_s()
    source.parts = set()
    await follower.look(lambda _: None)

    assert waits == [30, 60, 120, 240, 480, 600, 600]
    assert asked * 0.8 >= 3000, "with the jitter too"
    assert follower._wait_s() == 30


async def test_a_deleted_status_branch_of_an_idle_fleet_is_written_again(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}, look_s=0.3) as site:
        task = await serving(site, site.node())
        (site.repo / "refs/heads/llmgw/status/lab").unlink()

        await until(lambda: "as asked" in site.status().get("README.md", ""))
        task.cancel()


async def test_what_another_writes_to_the_status_branch_is_said_and_written_over(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}, look_s=0.3) as site:
        task = await serving(site, site.node())
        other = StatusBranch(str(site.repo), "lab", tmp_path / "other")
        trailers = {"Llmgw-Writer": "elsewhere 77"}
        other.write({"README.md": b"mine\n"}, subject="mine", trailers=trailers, author=AUTHOR, now=5)
        other.close()

        said = "another control writes the status of lab too: process 77 on elsewhere"
        await until(lambda: said in site.status().get("README.md", ""))
        await until(lambda: "as asked" in site.status()["README.md"] and said not in site.status()["README.md"])
        task.cancel()


async def test_an_idle_fleet_that_is_looked_at_makes_no_commits(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}, look_s=0.05) as site:
        task = await serving(site, site.node())
        branch = StatusBranch(str(site.repo), "lab", tmp_path / "reader2")
        before = branch.tip()
        await asyncio.wait({task}, timeout=0.5)
        after = branch.tip()
        branch.close()
        task.cancel()

    assert before == after


@pytest.mark.parametrize(
    ("path", "data"),
    [("models/6b/m.yaml", b"x: !!timestamp foo\n"), ("nodes/40/n1.yaml", b"{"), ("summary.yaml", b"x: 2024-99-99\n")],
)
async def test_control_starts_whatever_somebody_wrote_to_the_status_branch(tmp_path, path, data):
    async with a_control(tmp_path, files={"m": a_model(), "k": a_model("k")}) as site:
        node = site.node()
        (await serving(site, node)).cancel()
    files = {p: d.encode() for p, d in site.status().items()}
    commit_files(site.repo, {**files, path: data}, message="x\n", author=AUTHOR, now=9, branch="llmgw/status/lab")

    async with a_control(tmp_path) as site:
        again = site.node()
        again.replicas, again.obeyed = node.replicas, node.obeyed
        orders = await until(again.obey)
        await until(lambda: "state: ready" in site.status().get("models/6b/m.yaml", ""))

    assert [(r.id, r.action) for r in orders.replicas] == [("k/cpu/0", "run"), ("m/cpu/0", "run")]


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"POST /agent/v1/report HTTP/1.1\r\nHost: x\r\nX-Slow: a"])
async def test_a_connection_without_a_whole_request_is_ended(tmp_path, monkeypatch, sent):
    monkeypatch.setattr("llmgw.control.app.IDLE_S", 0.2)
    async with a_control(tmp_path) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(sent)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()


async def test_one_connection_too_many_is_told_to_come_back_and_the_others_are_served(tmp_path, monkeypatch):
    monkeypatch.setattr("llmgw.control.app.MAX_CONNECTIONS", 1)
    async with a_control(tmp_path) as site:
        _, kept = await asyncio.open_connection("127.0.0.1", site.port)
        await until(lambda: _full(site.port))
        kept.close()
        answer = await until(lambda: _health(site))

    assert answer.status == 200


async def _full(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    said = await reader.read()
    writer.close()
    return said.startswith(b"HTTP/1.1 503")


async def _health(site):
    answer = await site.client("operator", "ana").call("GET", "/v1/health")
    return answer if answer.status == 200 else None


async def test_a_report_that_does_not_come_is_not_waited_for_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr("llmgw.net.port.BODY_S", 0.2)
    async with a_control(tmp_path) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        head = b"POST /agent/v1/report HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer node-n1\r\n"
        writer.write(head + b"Content-Length: 100\r\n\r\n{")
        async with asyncio.timeout(20):
            assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()


async def test_a_file_that_cannot_be_read_is_said_to_hold_every_removal(tmp_path):
    async with a_control(tmp_path, files={"m": a_model(), "k": a_model("k")}) as site:
        node = site.node()
        task = await serving(site, node)
        site.push(huge=b"# " + b"x" * 300_000, k=None)
        said = "no model is removed while catalog/huge.yaml cannot be read"
        page = await until(lambda: said in site.status().get("README.md", "") and site.status())
        live = await site.client("operator", "ana").call("GET", "/v1/status")
        site.push(huge=None)
        await until(lambda: said not in site.status()["README.md"])
        task.cancel()

    assert page["summary.yaml"].count(said) == 1
    assert said in live.body.decode()
