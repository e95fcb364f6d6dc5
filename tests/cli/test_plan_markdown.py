"""The comment of a pull request: short enough, whole, and nothing of the files is read as markup."""

from __future__ import annotations

import re

import pytest
from fleets import NOW, SETTLED, R, fleet, model, node, profile, wanting
from msgspec import structs

from llmgw.cli.plan_markdown import MOST, MOST_ROWS, plan_markdown
from llmgw.cli.plan_outline import PAIN, verb
from llmgw.core.observed import Observed
from llmgw.core.preview import preview
from llmgw.core.simulate import course


def comment(before, after, seen) -> str:
    nodes = [n.name for n in seen.nodes]
    base, head = wanting(*before, nodes=nodes), wanting(*after, nodes=nodes)
    ended = course(head, seen, SETTLED, NOW)
    return plan_markdown(preview(base, head, ended, observed="here", dirty=False, based_on="b" * 40))


def described(text: str) -> str:
    """The comment of a change of a description."""
    was = model(cpu=1)
    return comment([was], [model(cpu=1, description=text)], fleet(was, "n1", cpu=[R]))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", "a&#124;b"),
        ("`code` ``` fence", r"\`code\` \`\`\` fence"),
        ("<img src=x onerror=y> &amp;", r"&lt;img src=x onerror=y&gt; &amp;amp;"),
        ("@everyone", "@\u200beveryone"),
        ("[x](http://a) **b** #1", r"\[x\]\(http://a\) \*\*b\*\* \#1"),
        ("</details>\u202e\x1b[2J", r"&lt;/details&gt;"),
    ],
)
def test_what_a_file_says_is_text_and_nothing_else(text, shown):
    said = described(text)

    row = next(line for line in said.splitlines() if line.startswith("|  | description"))
    assert shown in row
    assert len(re.findall(r"(?<!\\)\|", row)) == 6, "no cell is added to its row"
    assert "\x1b" not in said
    assert "\u202e" not in said


def test_a_fence_is_longer_than_any_in_it():
    was = model(cpu=1)
    base, head = wanting(was, nodes=["n1"]), wanting(nodes=["n1"])
    ended = course(head, fleet(was, "n1", cpu=[R]), SETTLED, NOW)
    plan = preview(base, head, ended, observed="", dirty=False, based_on="")
    (found,) = plan.models
    stops = tuple(structs.replace(stop, why="a ```` b") for stop in found.stops)

    said = plan_markdown(structs.replace(plan, models=(structs.replace(found, stops=stops),)))

    assert re.findall(r"^(`{3,})(text)?$", said, re.MULTILINE) == [
        ("`````", "text"),
        ("`````", ""),
        ("```", "text"),
        ("```", ""),
    ]


def test_a_comment_of_hundreds_of_models_is_cut_by_whole_sections_with_the_worst_first():
    """runatlantis/atlantis#55, #111, #496: a long plan was lost, and a split one broke its own markup."""
    before = [model(f"m{n:03}", cpu=1) for n in range(400)]
    after = [model(f"m{n:03}", cpu=1, description="x" * 2000) for n in range(399)]
    after.append(model("worst", profiles=[profile(memory_gib=9999)]))

    said = comment(before, after, Observed((node("n1", cores=999, memory_gib=999),)))

    assert len(said) <= MOST
    assert said.count("<details>") == said.count("</details>") > 0
    assert said.count("```") % 2 == 0
    assert re.search(r"\d+ sections more did not fit", said)
    rows = [line for line in said.splitlines() if re.match(r"\| (m\d|worst)", line)]
    assert len(rows) == MOST_ROWS
    assert rows[0].startswith("| worst | held |")


def test_every_word_for_what_becomes_of_a_model_has_its_place_in_the_order():
    was = model(cpu=1)
    changes = {
        "in place": [model(cpu=1, description="x")],
        "roll": [model(cpu=1, context_length=2048)],
        "scale": [model(cpu=2)],
        "remove": [],
        "held": [model(profiles=[profile(memory_gib=9999)])],
        "create": [was, model("other", cpu=1)],
    }
    for expected, after in changes.items():
        base, head = wanting(was, nodes=["n1"]), wanting(*after, nodes=["n1"])
        ended = course(head, fleet(was, "n1", cpu=[R]), SETTLED, NOW)
        (found,) = preview(base, head, ended, observed="", dirty=False, based_on="").models
        assert verb(found) == expected
        assert expected in PAIN
