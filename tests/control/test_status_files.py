"""The status as files of its branch, and back."""

import pytest
from fleets import NOW, SETTLED, R, fleet, model, wanting

from llmgw.catalog.keys import ClientKey
from llmgw.core.decide import decide
from llmgw.core.holdings import Holding, HoldingState, MirrorSeen
from llmgw.core.observed import Observed
from llmgw.core.status import status
from llmgw.core.wanted import WantedKey
from llmgw.errors import OperatorError
from llmgw.sources.status_files import from_files, observed, remembered, to_files
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


def test_no_key_of_an_engine_and_no_port_is_in_any_file():
    *_, files = written()

    assert not [p for p, data in files.items() if b"key: " in data and not p.endswith("summary.yaml")]


def test_the_readme_says_the_state_in_its_first_line_and_problems_before_anything_else():
    _wanted, _now, files = written(silent=["n2"])
    page = files["README.md"].decode()

    assert page.startswith("# lab: 1 of 2 replicas ready")
    assert page.index("## To look at") < page.index("## Models") < page.index("## Nodes") < page.index("## Mirror")
    assert "| old/3 | present | 100 B | not served |" in page


def test_markup_and_mentions_in_a_value_are_only_text():
    from llmgw.sources.readme import _text

    assert _text("a|b\n`c` <d> @ana *e*") == "a\\|b \\`c\\` \\<d\\> @\u200bana \\*e\\*"


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("summary.yaml", b"{"),
        ("summary.yaml", b"- a list"),
        ("summary.yaml", b"format: 1"),
        ("nodes/1c/n1.yaml", b"name: 5"),
        ("models/6b/m.yaml", b"name: m\nstate: ready\nspec: {name: 7}"),
    ],
)
def test_a_file_somebody_wrote_by_hand_is_said_with_what_to_do(path, data):
    *_, files = written()

    with pytest.raises(OperatorError, match=r"of the status branch cannot be read") as told:
        from_files({**files, path: data})
    assert told.value.do == "leave the branch to llmgw: delete it, and the next pass writes it anew"


def test_a_later_format_is_not_guessed_at():
    *_, files = written()
    later = files["summary.yaml"].replace(b"format: 1", b"format: 2")

    with pytest.raises(OperatorError, match="the status branch has format 2"):
        from_files({**files, "summary.yaml": later})
