"""The status as files of its branch, and back."""

import pytest
from fleets import NOW, SETTLED, R, card, fleet, model, node, wanting
from msgspec import structs

from llmgw.catalog.fingerprint import fingerprint
from llmgw.catalog.keys import ClientKey
from llmgw.cli.status_text import Look, model_page
from llmgw.core.decide import decide
from llmgw.core.holdings import Holding, HoldingState, MirrorSeen
from llmgw.core.observed import Observed
from llmgw.core.outlook import with_headroom
from llmgw.core.status import status
from llmgw.core.wanted import WantedKey
from llmgw.errors import OperatorError
from llmgw.planning.learned import Estimates, Figure, Learned, Run
from llmgw.planning.speed import CardSpeed
from llmgw.sources.markdown import text
from llmgw.sources.resumed import observed, remembered, seen_in
from llmgw.sources.status_files import from_files, to_files
from llmgw_agent.protocol import WeightFile

FILES = (WeightFile("m.gguf", 100, "a" * 64),)
MIRROR = {"base": "http://a:1", "api": "http://a:2"}


def written(*, silent=()):
    of = model(cpu=2, source={"from": "https://hub.example/m.gguf", "version": "1"})
    wanted = wanting(of, nodes=["n1", "n2"], mirror=MIRROR)
    wanted = wanted.__class__(
        wanted.commit,
        0,
        wanted.server,
        wanted.models,
        (WantedKey(ClientKey(name="ana", sha256="a" * 64), "keys/ana.yaml"),),
        applied="b" * 40,
    )
    holdings = (
        Holding("m", "1", HoldingState.PRESENT, files=FILES),
        Holding("old", "3", HoldingState.PRESENT, files=FILES),
    )
    seen = Observed(fleet(of, "n1", "n2", silent=silent, cpu=[R, R]).nodes, MirrorSeen(holdings, 5 << 30))
    plan = decide(wanted, seen, SETTLED, NOW)
    now = status(wanted, seen, plan, NOW)
    return wanted, now, to_files(now, wanted, version="0.1.0")


def test_what_was_written_is_read_back_whole():
    wanted, now, files = written()

    back = from_files(files)

    assert back.status == now
    assert back.wanted.models["m"].model == wanted.models["m"].model
    assert back.wanted.server == wanted.server
    assert back.wanted.keys == wanted.keys
    assert (back.wanted.commit, back.wanted.applied) == ("c" * 40, "b" * 40)


def test_what_others_hold_of_a_card_is_known_to_a_plan_made_of_the_branch_and_makes_no_commit():
    wanted = wanting(model(cpu=1), nodes=["n1"])

    def at(used_gib):
        seen = Observed((node("n1", cards=[card(0, used_gib=used_gib), card(1)]),))
        return status(wanted, seen, decide(wanted, seen, SETTLED, NOW), NOW)

    (back,) = observed(from_files(to_files(at(27), wanted, version="0.1.0"))).nodes

    assert [c.used_by_others_bytes for c in back.inventory.cards] == [27 << 30, 0]
    assert at(27).digest == at(0).digest


def test_how_many_more_would_fit_is_written_and_read_back():
    wanted, now, _ = written()

    back = from_files(to_files(with_headroom(now, wanted, seen_in(now)), wanted, version="0.1.0"))

    (left,) = next(m for m in back.status.models if m.name == "m").now.headroom
    # 256 GiB, 64 cores and 8 cards on each of two nodes, of which each has one replica of a GiB and a core.
    assert (left.profile, left.more, left.by_preempting) == ("cpu", 126, 126)
    page = model_page(Look(back.status, "now", {}), back.status.models[0])
    assert " ".join(" ".join(page).split()).endswith(left.sentence)


def test_the_same_status_is_the_same_bytes():
    assert written()[2] == written()[2]


def test_a_plan_in_ci_sees_the_fleet_as_it_was_written():
    wanted, _, files = written(silent=["n2"])

    seen = observed(from_files(files))
    plan = decide(wanted, seen, SETTLED, NOW)

    assert [(n.name, len(n.replicas)) for n in seen.nodes] == [("n1", 1), ("n2", 1)]
    assert plan.empty


def test_control_takes_up_what_nodes_do_not_report_themselves():
    *_, files = written()

    memory = remembered(from_files(files), now=NOW + 50)

    assert memory.files == {"m/1": FILES, "old/3": FILES}
    assert memory.unreferenced == {"old/3": NOW}, "retention goes on from where it was"
    assert not memory.settled


def rolling(edit=lambda good: good):
    """The status while a model goes from one form to the next, its last good form as somebody left it."""
    before, after = model(cpu=2), model(cpu=2, context_length=8192)
    seen = fleet(before, "n1", "n2", cpu=[R, R])
    known = decide(wanting(before), seen, SETTLED, NOW).memory.good["m/cpu"]
    wanted, memory = wanting(after), structs.replace(SETTLED, good={"m/cpu": edit(known)})
    now = status(wanted, seen, decide(wanted, seen, memory, NOW), NOW)
    return known, from_files(to_files(now, wanted, version="0.1.0"))


def test_what_served_is_the_last_good_form_to_a_control_that_starts():
    of = model(cpu=2, source={"from": "https://hub.example/m.gguf", "version": "1"})
    *_, files = written()

    good = remembered(from_files(files), now=NOW + 50).good["m/cpu"]

    assert (good.fingerprint, good.version) == (fingerprint(of, of.profiles[0]), "m/1")


def test_while_another_form_is_wanted_the_last_good_one_is_kept_beside_it():
    known, recorded = rolling()

    assert remembered(recorded, now=NOW).good == {"m/cpu": known}


@pytest.mark.parametrize(
    "edit",
    [
        lambda good: structs.replace(good, fingerprint="0" * 16),
        lambda good: structs.replace(good, spec={**good.spec, "name": "other"}),
        lambda good: structs.replace(good, memory_gib=-1.0),
    ],
    ids=["not what it says", "another model's", "a claim that cannot be"],
)
def test_a_last_good_form_that_was_edited_by_hand_is_not_known(edit):
    _, recorded = rolling(edit)

    assert remembered(recorded, now=NOW).good == {}


def test_no_key_of_an_engine_and_no_port_is_in_any_file():
    *_, files = written()

    assert not [p for p, data in files.items() if b"key: " in data and not p.endswith("summary.yaml")]


def test_the_readme_says_the_state_in_its_first_line_and_problems_before_anything_else():
    _wanted, _now, files = written(silent=["n2"])
    page = files["README.md"].decode()

    assert page.startswith("# lab: 1 of 2 replicas ready")
    assert page.index("## To look at") < page.index("## Models") < page.index("## Nodes") < page.index("## Mirror")
    assert "| old | 3 | present | 1 | 100 B | not served: `llmgw model add mirror:old/3` | 0 |" in page


def test_markup_and_mentions_in_a_value_are_only_text():
    assert text("a|b\n`c` <d> @ana *e*") == "a\\|b \\`c\\` \\<d\\> @\u200bana \\*e\\*"


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("summary.yaml", b"{"),
        ("summary.yaml", b"- a list"),
        ("summary.yaml", b"format: 1"),
        ("nodes/40/n1.yaml", b"name: 5"),
        ("models/6b/m.yaml", b"name: m\nstate: ready\nspec: {name: 7}"),
    ],
)
def test_a_file_somebody_wrote_by_hand_is_said_with_what_to_do(path, data):
    *_, files = written()

    with pytest.raises(OperatorError, match=r"of the status branch cannot be read") as told:
        from_files({**files, path: data})
    assert told.value.do == "leave the branch to llmgw: delete it, and the next pass writes it anew"


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        pytest.param("nodes/40/n1.yaml", b"standing: usable", b"standing: gone", id="a standing that is none"),
        pytest.param("nodes/40/n1.yaml", b"generation: 1", b"generation: 9007199254740993", id="a huge generation"),
        pytest.param("nodes/40/n1.yaml", b"name: n1", b"name: n7", id="another node's name"),
        pytest.param("models/6b/m.yaml", b"state: ", b"x: 2024-99-99\nstate: ", id="a date that is none"),
        pytest.param("models/6b/m.yaml", b"state: ", b"x: !!int a\nstate: ", id="a number that is none"),
        pytest.param("models/6b/m.yaml", b"state: ", b"x: !!timestamp foo\nstate: ", id="a time that is none"),
        pytest.param("models/6b/m.yaml", b"state: ", b"x: !!bool foo\nstate: ", id="a truth that is none"),
        pytest.param("models/6b/m.yaml", b"state: ", b"? [a]\n: b\nstate: ", id="a key that is a list"),
        pytest.param("models/6b/m.yaml", b"state: ", b"x: " + b"[" * 100_000 + b"\nstate: ", id="nested without end"),
        pytest.param("models/6b/m.yaml", b"since: 0", b"since: x", id="a time in words"),
        pytest.param("models/6b/m.yaml", b"name: m\n", b"name: ../../x\n", id="a name that leads elsewhere"),
        pytest.param("models/6b/m.yaml", b"name: m\n", b"<<<<<<< HEAD\nname: m\n", id="marks of a conflict"),
        pytest.param("mirror.yaml", b"unreferenced_since: 1", b"unreferenced_since: x1", id="the mirror's file"),
    ],
)
def test_a_broken_file_takes_nothing_else_with_it_and_is_said(path, old, new):
    *_, files = written()
    broken = files[path].replace(old, new)
    assert broken != files[path]

    good, back = from_files(files), from_files({**files, path: broken}, whole=False)

    (problem,) = back.problems
    assert problem.startswith(f"{path} of the status branch cannot be read")
    assert back.wanted.server == good.wanted.server
    assert back.wanted.keys == good.wanted.keys
    assert set(good.wanted.models) - set(back.wanted.models) == ({"m"} if path.startswith("models/") else set())
    assert {n.name for n in observed(back).nodes} == ({"n2"} if path.startswith("nodes/") else {"n1", "n2"})
    assert remembered(back, now=NOW).files == ({} if path == "mirror.yaml" else remembered(good, now=NOW).files)


def test_what_is_no_commit_is_no_base_for_the_next():
    *_, files = written()
    summary = files["summary.yaml"].replace(b"b" * 40, "évil".encode())

    assert from_files({**files, "summary.yaml": summary}, whole=False).wanted.applied == ""


def test_a_time_that_is_yet_to_come_counts_as_now():
    # The clock of the machine that wrote it was wrong: retention would never end.
    *_, files = written()

    assert remembered(from_files(files), now=NOW - 100).unreferenced == {"old/3": NOW - 100}


def test_a_later_format_is_not_guessed_at():
    *_, files = written()
    later = files["summary.yaml"].replace(b"format: 1", b"format: 2")

    with pytest.raises(OperatorError, match="the status branch has format 2"):
        from_files({**files, "summary.yaml": later})


GIB = float(1 << 30)
RUN = Run(
    "m", "cpu", "n1", "llamacpp", "llama", "cpu", "b1", int(NOW), Figure(4 * GIB, 4.2 * GIB), tps=Figure(30.0, 24.0)
)


def learned(**fields):
    wanted, now, _ = written()
    now = structs.replace(now, estimates=Estimates(int(NOW), (structs.replace(RUN, **fields),)))
    return now, to_files(now, wanted, version="0.1.0")


def test_what_estimates_were_worth_is_read_back_and_an_empty_branch_has_no_file_of_it():
    now, files = learned(speed=CardSpeed(0.84, 5e-05, 5e-05))

    back = from_files(files)

    assert back.status == now
    assert remembered(back, now=NOW).learned == Learned(now.estimates.runs, now.estimates)
    assert "estimates.yaml" not in written()[2]


def test_a_person_reads_how_wrong_estimates_were():
    page = learned(engine="llamacpp")[1]["README.md"].decode()

    assert page.index("## Mirror") < page.index("## Estimates: how wrong")
    assert "| llamacpp b1 | llama | cpu | 1 | 1.05, 1.05, 1.05 | - | 0.80, 0.80, 0.80 |" in page
    assert "how wrong" not in written()[2]["README.md"].decode()


@pytest.mark.parametrize("figure", ["0", "-1.0", ".nan", ".inf", "1e99", "x", "null", "[1]", "true"])
def test_a_figure_that_cannot_be_is_left_out_with_its_file_and_nothing_else(figure):
    _, files = learned()
    broken = files["estimates.yaml"].replace(b"measured: 24.0", b"measured: " + figure.encode())
    assert broken != files["estimates.yaml"]

    back = from_files({**files, "estimates.yaml": broken}, whole=False)

    (problem,) = back.problems
    assert problem.startswith("estimates.yaml of the status branch cannot be read")
    assert (back.status.estimates, len(back.status.nodes)) == (Estimates(), 2)
