"""A model renamed with the same source refers to the weights it had, and moves no bytes."""

from dataclasses import replace

import pytest
from fleets import NOW, SETTLED, held, model, moves, node, replica, wanting
from msgspec import structs

from llmgw.catalog import canonical
from llmgw.catalog.check import read_fleet
from llmgw.catalog.fingerprint import fingerprint
from llmgw.catalog.lock import Lock
from llmgw.core.decide import decide
from llmgw.core.downloads import downloads
from llmgw.core.headroom import headroom
from llmgw.core.holdings import Holding, HoldingState, MirrorSeen
from llmgw.core.lastgood import kept
from llmgw.core.live import SeenNow, specs, wanted_now
from llmgw.core.memory import LastGood
from llmgw.core.observed import Observed
from llmgw.core.references import References, held_files
from llmgw.core.replicas import survey
from llmgw.core.rooms import Rooms
from llmgw.core.simulate import course
from llmgw.core.status import status
from llmgw.core.wanted import WantedModel, judge
from llmgw.sources.resumed import remembered
from llmgw.sources.status_files import from_files, to_files
from llmgw_agent.protocol import WeightFile

MIRROR = {"base": "http://10.0.0.2:8081", "api": "http://10.0.0.2:8082", "retain": "1h"}
A, B = "a" * 64, "b" * 64
FILES = (WeightFile("m.gguf", 100, A),)
CODER = (Holding("coder", "1", HoldingState.PRESENT, files=FILES),)
HELD = {"coder/1": FILES}
SERVER = b"schema: 1\ncluster: lab\nnodes: [{name: n1, address: 10.0.0.1}]\nmirror: {base: 'http://10.0.0.2:1', api: 'http://10.0.0.2:2'}\n"
MODEL = """name: {name}
context_length: 4096
source: {{from: "https://hub.example/m.gguf", version: "1"}}
profiles: [{{name: cpu, engine: llamacpp, replicas: {n}, memory_gib: 1}}]
"""


def one(name, n=1):
    return MODEL.format(name=name, n=n).encode()


def commit(files, *, last=None, **more):
    """What a commit with one file of these asks for."""
    found = read_fleet({"server.yaml": SERVER, **{f"catalog/{path}.yaml": data for path, data in files.items()}})
    return judge(found, commit="b" * 40, committed_at=5, last=last, **more)


def lock(name, *sums):
    files = [{"path": f"{i}.gguf", "bytes": 100, "sha256": sha256} for i, sha256 in enumerate(sums)]
    return Lock.model_validate({"model": name, "source": {"from": "https://hub.example/m.gguf"}, "files": files})


def entry(name, *, file="m.gguf", version="1", sums=(), held_as="", **source):
    """A model, as a commit asks for it: locked, where sums are given."""
    of = model(name, cpu=1, source={"from": f"https://hub.example/{file}", "version": version, **source})
    return WantedModel(of, "x.yaml", "c" * 40, lock=lock(name, *sums) if sums else None, held_as=held_as)


def refers(models, before=(), held=HELD):
    """The key that the first of some models has its weights under; empty: its own."""
    return References({m.model.name: m for m in models}, {m.model.name: m for m in before}, held).of(
        models[0].model.name
    )


WRITER, ONE = entry("writer"), {"0.gguf": A}
LOCKED = {"coder/1": (WeightFile("0.gguf", 100, A), WeightFile("1.gguf", 100, B))}


@pytest.mark.parametrize(
    ("models", "before", "there", "key"),
    [
        pytest.param([WRITER], [entry("coder")], HELD, "coder/1", id="renamed"),
        pytest.param([WRITER], [entry("coder")], {}, "coder/1", id="renamed while it arrives"),
        pytest.param([WRITER], [entry("b", held_as="coder/1")], HELD, "coder/1", id="renamed twice"),
        pytest.param(
            [entry("writer", held_as="coder/1")], [entry("writer", held_as="coder/1")], HELD, "coder/1", id="stays"
        ),
        pytest.param(
            [WRITER, entry("coder")], [entry("coder")], HELD, "coder/1", id="added beside one of the same source"
        ),
        pytest.param([WRITER], [], HELD, "", id="nobody says that what is there is the same"),
        pytest.param([entry("writer", version="2")], [entry("coder")], HELD, "", id="renamed with a new version"),
        pytest.param([entry("writer", file="x.gguf")], [entry("coder")], HELD, "", id="renamed with another source"),
        pytest.param([WRITER], [entry("coder")], {**HELD, "writer/1": ()}, "", id="held under its own name"),
        pytest.param(
            [entry("writer", version="2")],
            [entry("writer", held_as="coder/1")],
            HELD,
            "",
            id="its next version is its own",
        ),
        pytest.param(
            [entry("writer", checksums={"x.gguf": A})], [], HELD, "", id="the sum that it writes is of another path"
        ),
        pytest.param(
            [entry("writer", sums=[A])], [entry("coder")], HELD, "", id="what is there has other paths than its lock"
        ),
        pytest.param(
            [entry("writer", sums=[A, A])],
            [entry("writer", held_as="coder/1")],
            LOCKED,
            "",
            id="what it referred to is not what its lock says",
        ),
        pytest.param(
            [WRITER, entry("coder", file="x.gguf")],
            [entry("writer", held_as="coder/1")],
            {},
            "",
            id="the old name is taken later and nothing is there",
        ),
        pytest.param([entry("writer", sums=[A, B])], [], LOCKED, "coder/1", id="the sums of its lock are there"),
        pytest.param([entry("writer", sums=[A, A])], [], LOCKED, "", id="other sums are there"),
        pytest.param([entry("writer", sums=[B, A])], [], LOCKED, "", id="the same sums under other paths"),
        pytest.param([entry("writer", sha256=A)], [], HELD, "coder/1", id="the sum that it writes is there"),
        pytest.param([entry("writer", sha256=B)], [entry("coder")], HELD, "", id="what is there has another sum"),
        pytest.param(
            [entry("writer", sums=[A])], [entry("coder", sums=[B])], {}, "", id="renamed and locked to other files"
        ),
        pytest.param(
            [WRITER, entry("coder", file="x.gguf")],
            [entry("coder")],
            {},
            "",
            id="the old name asks for others and has none",
        ),
        pytest.param(
            [WRITER, entry("coder", file="x.gguf")],
            [entry("writer", held_as="coder/1")],
            HELD,
            "coder/1",
            id="the old name is taken later",
        ),
        pytest.param(
            [WRITER, entry("coder", version="2")],
            [entry("coder")],
            HELD,
            "coder/1",
            id="the old name has a new version",
        ),
    ],
)
def test_where_the_weights_of_a_model_are_held(models, before, there, key):
    assert refers(models, before, there) == key


def test_a_model_that_is_read_in_place_refers_to_nothing():
    path = WantedModel(model("writer", cpu=1), "x.yaml", "c" * 40)

    assert refers([path], [WantedModel(model("coder", cpu=1), "x.yaml", "c" * 40)]) == ""


def wanted(*entries, purged=()):
    base = wanting(nodes=("n1", "n2"), mirror=MIRROR)
    return replace(base, models={e.model.name: e for e in entries}, purged=frozenset(purged))


RENAMED = entry("writer", held_as="coder/1")


def run(asked, *nodes, mirror=CODER, memory=SETTLED, now=NOW):
    seen = Observed(nodes or (node("n1"), node("n2")), None if mirror is None else MirrorSeen(tuple(mirror)))
    return decide(asked, seen, memory, now)


class TestAPass:
    def test_a_renamed_model_starts_on_what_is_held_and_where_it_is_held(self):
        plan = run(wanted(RENAMED), node("n1"), node("n2", versions=["coder/1"]))

        assert moves(plan) == ["+writer/cpu/0"]
        assert [(p.node, p.version) for p in plan.placements] == [("n2", "coder/1")]

    def test_what_is_referred_to_is_kept_however_long_and_goes_once_it_is_not(self):
        renamed, updated = (
            replace(e, model=e.model.model_copy(update={"state": "stopped"}))
            for e in (RENAMED, entry("writer", version="2"))
        )
        here = run(wanted(renamed))
        later = run(wanted(renamed), node("n1", versions=["coder/1"]), memory=here.memory, now=NOW + 36_000)
        left = run(wanted(updated), memory=later.memory, now=NOW + 36_001)
        over = run(wanted(updated), memory=left.memory, now=NOW + 36_001 + 3600)

        assert (moves(later), later.stock) == ([], ())
        assert (moves(left), moves(over)) == ([], ["remove coder/1"])

    def test_once_it_has_gone_what_it_referred_to_is_kept_as_long_as_it_said(self):
        here = run(wanted(entry("writer", held_as="coder/1", retain="1d")))
        gone = run(wanted(), memory=structs.replace(here.memory, placements=()), now=NOW + 10)

        def after(seconds):
            return moves(run(wanted(), memory=gone.memory, now=NOW + 10 + seconds))

        assert (after(86_399), after(86_400)) == ([], ["remove coder/1"])

    def test_a_purge_of_the_old_name_keeps_what_the_new_one_refers_to(self):
        plan = run(wanted(RENAMED, purged=["coder"]), node("n1", versions=["coder/1"]), node("n2"))

        assert [p.sentence for p in plan.memory.purges] == [
            "coder/1 on n1: kept for writer",
            "coder/1 on the mirror: kept for writer",
        ]
        assert not {"remove coder/1"} & {*moves(plan)}

    def test_while_the_mirror_is_away_it_goes_on_with_what_was_held(self):
        known = run(wanted(RENAMED)).memory

        plan = run(wanted(RENAMED), mirror=None, memory=structs.replace(known, placements=(), generations={}))

        assert moves(plan) == ["+writer/cpu/0"]
        assert plan.placements[0].version == "coder/1"

    def test_what_the_mirror_lost_is_fetched_again_as_what_it_was_and_once_for_all_that_share_it(self):
        plan = run(wanted(RENAMED, entry("coder")), mirror=())

        assert moves(run(wanted(RENAMED), mirror=())) == ["fetch coder/1"]
        assert moves(plan) == ["fetch coder/1"]
        assert held(plan) == [f"{name}: the mirror is asked for its weights" for name in ("coder", "writer")]

    def test_a_model_that_takes_the_old_name_with_other_files_says_what_to_do(self):
        plan = run(wanted(RENAMED, entry("coder", file="x.gguf")))

        assert moves(plan) == ["+writer/cpu/0"]
        assert [h.sentence for h in plan.held if h.model == "coder"] == [
            "coder: coder/1 is what the weights of writer are held under, and they are others; "
            "give its source another version"
        ]

    def test_a_replica_that_runs_is_not_out_of_date_for_what_its_weights_are_called(self):
        of = RENAMED.model
        node1 = node("n1", replica("writer/cpu/0", of, version="writer/1"), versions=["writer/1"])

        assert moves(run(wanted(RENAMED), node1, node("n2"))) == []


def test_a_status_says_who_uses_it_and_a_control_that_has_forgotten_everything_goes_on_with_it():
    asked, seen = wanted(RENAMED), Observed((node("n1"), node("n2")), MirrorSeen(CODER))
    said = status(asked, seen, decide(asked, seen, SETTLED, NOW), NOW)
    back = from_files(to_files(said, asked, version="0.1.0"))

    assert said.mirror is not None
    assert [(h.name, h.models) for h in said.mirror.holdings] == [("coder", ("writer",))]
    assert back.wanted is not None
    assert back.wanted.models["writer"].version_key == "coder/1"
    assert held_files(Observed(), remembered(back, now=NOW).files) == HELD


def test_a_rename_in_one_commit_refers_to_the_old_holding_and_every_later_commit_does():
    first = commit({"a": one("coder")})
    second = commit({"a": one("writer")}, last=first, held={"coder/1": FILES})
    third = commit({"a": one("writer", 3)}, last=second, held={})
    purged = commit({}, last=third, purged=["writer"], allowed_removals=1)

    assert second.models["writer"].version_key == third.models["writer"].version_key == "coder/1"
    assert purged.purged == {"writer", "coder"}


def test_the_last_good_form_of_a_renamed_model_is_known_with_its_weights_after_a_restart():
    of = RENAMED.model
    good = LastGood(fingerprint(of, of.profiles[0]), canonical.spec(of), 1.0, "coder/1")
    foreign = structs.replace(good, version="coder/7")

    assert kept({"cpu": good}, "writer")["cpu"].version == "coder/1"
    assert kept({"cpu": foreign}, "writer")["cpu"].version == "writer/1"


def test_what_control_shows_to_a_plan_says_where_weights_are_held():
    asked = wanted(RENAMED)
    server = asked.server.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    shown = SeenNow("c" * 40, "", {"schema": 1, **server}, specs(asked), Observed(), SETTLED)

    told = wanted_now(shown)

    assert told is not None
    assert told.models["writer"].version_key == "coder/1"


def test_more_of_a_renamed_model_fit_where_its_weights_are():
    nodes = [node("n1", disk_gib=10, memory_gib=3), node("n2", disk_gib=10, memory_gib=3, versions=["coder/1"])]
    rooms = Rooms(survey(wanted(RENAMED), Observed(tuple(nodes)), SETTLED, NOW))

    (found,) = headroom([RENAMED], rooms, {"coder/1": 20 << 30})

    assert found.more == 3


def test_other_files_under_the_version_of_a_renamed_model_are_a_problem_as_of_any():
    renamed = commit({"a": one("writer")}, last=commit({"a": one("coder")}), held=HELD)

    other = commit({"a": one("writer").replace(b"/m.gguf", b"/x.gguf")}, last=renamed, held=HELD)

    assert other.models["writer"].frozen.endswith("give the new files a new version")
    assert other.models["writer"].version_key == "coder/1"


def test_a_file_that_breaks_after_a_rename_is_frozen_with_what_it_refers_to():
    renamed = commit({"a": one("writer")}, last=commit({"a": one("coder")}), held=HELD)

    broken = commit({"a": one("writer") + b"unknown: 1\n"}, last=renamed, held=HELD)

    assert broken.models["writer"].frozen
    assert broken.models["writer"].version_key == "coder/1"


def test_a_plan_of_a_rename_fetches_nothing():
    seen = Observed((node("n1", versions=["coder/1"]),), MirrorSeen(CODER))
    renamed = commit({"a": one("writer")}, last=commit({"a": one("coder")}), held=held_files(seen, {}))

    assert renamed is not None
    found = course(renamed, seen, SETTLED, NOW)
    assert downloads(found, renamed) == ()
    assert [r.id for n in found.end.nodes for r in n.replicas] == ["writer/cpu/0"]
