"""What an editor says with the schema and what we say are the same, on good files and on broken ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from catalog.written import GONE, KEY, MODEL, SERVER, WIDE, WIDE_KEY, WIDE_SERVER, as_yaml, changed
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from llmgw.catalog import reference, schema
from llmgw.catalog.check import read_fleet, read_lock, read_models
from llmgw.catalog.keys import ClientKey
from llmgw.catalog.lock import write
from llmgw.catalog.model import Model
from llmgw.catalog.parse import parse
from llmgw.catalog.profile import Profile
from llmgw.catalog.server import Server
from llmgw.cli.schema import drift, write_all

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "catalog"
LOCKS = sorted(EXAMPLES.glob("locks/*.yaml"))
FILES = sorted({*EXAMPLES.rglob("*.yaml")} - {*LOCKS})
"""What people write: a lock has no schema for editors."""
KINDS = {"model": (Model, MODEL), "server": (Server, SERVER), "keys": (ClientKey, KEY)}
VALIDATORS = {
    name.partition(".")[0]: Draft202012Validator(json.loads(text)) for name, text in schema.documents().items()
}


def kind_of(path: Path) -> str:
    return (
        {"catalog": "model", "keys": "keys"}.get(path.parent.name, "server") if path.name != "server.yaml" else "server"
    )


def test_the_schemas_are_what_the_types_say():
    assert drift(ROOT / "schema") == [], "run: llmgw schema --write"


def test_drift_names_the_files_that_differ_and_those_that_are_not_there(tmp_path):
    write_all(tmp_path)
    assert drift(tmp_path) == []

    (tmp_path / "keys.schema.json").write_text("{}")
    (tmp_path / "model.schema.json").unlink()

    assert drift(tmp_path) == ["keys.schema.json", "model.schema.json"]


@pytest.mark.parametrize("kind", VALIDATORS)
def test_a_schema_is_one_of_draft_2020_12(kind):
    Draft202012Validator.check_schema(VALIDATORS[kind].schema)
    assert VALIDATORS[kind].schema["$schema"] == schema.DRAFT


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_every_example_is_valid_to_an_editor(file):
    assert list(VALIDATORS[kind_of(file)].iter_errors(parse(file.read_bytes()).value)) == []


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_every_example_names_the_schema_that_an_editor_is_to_use(file):
    first = file.read_text().splitlines()[0]

    named = re.fullmatch(r"# yaml-language-server: \$schema=(.+)", first)

    assert named, first
    assert (file.parent / named[1]).resolve() == ROOT / "schema" / f"{kind_of(file)}.schema.json"


def test_the_examples_are_a_fleet_without_problems():
    catalog = read_fleet({path.relative_to(EXAMPLES).as_posix(): path.read_bytes() for path in (*FILES, *LOCKS)})

    assert catalog.problems == ()
    assert len(catalog.models) >= 4
    fetched = {e.model.name for e in catalog.models if e.model.source_ is not None and not e.model.source.is_path}
    assert catalog.locks.keys() == fetched == {path.stem for path in LOCKS}


@pytest.mark.parametrize("file", LOCKS, ids=lambda path: path.name)
def test_a_lock_of_an_example_says_that_it_is_one_and_has_the_written_form(file):
    text, comment = file.read_text(), "# An example: the sums, sizes and figures are made up.\n"

    assert comment in text
    assert write(read_lock(f"locks/{file.name}", file.read_bytes()).entry.lock).decode() == text.replace(comment, "")


def test_an_example_needs_its_lock():
    files = {path.relative_to(EXAMPLES).as_posix(): path.read_bytes() for path in (*FILES, *LOCKS)}
    del files["locks/mistral-small.yaml"]

    catalog = read_fleet(files)

    assert {p.do for p in catalog.problems} == {
        "pin it: llmgw lock mistral-small",
        "give memory_gib, or run llmgw lock mistral-small",
    }


WRONG: tuple[Any, ...] = (
    *(None, True, "", "x", "A b", "1", "15m", "1y", -1, 0, 1, 1.0, 1.5, 10**12),
    *([], ["a"], [1], {}, {"a": "b"}, {"a": 1}, GONE),
)
"""Values to put in place of any other."""


def ways(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The ways to everything inside a value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way for key, part in parts for way in ((*at, key), *ways(part, (*at, key)))]


FREE = {"env", "env_from", "set", "checksums", "labels", "blocks"}
"""Mappings whose keys are the writer's own."""


def mappings(sample: dict[str, Any]) -> list[tuple[str | int, ...]]:
    """The ways to mappings with keys of ours."""
    found = [()]
    for at in ways(sample):
        here: Any = sample
        for step in at:
            here = here[step]
        if isinstance(here, dict) and at[-1] not in FREE:
            found.append(at)
    return found


def fits(kind: type, value: Any) -> bool:
    try:
        kind.model_validate(value, by_name=False)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("name", KINDS)
def test_an_editor_and_we_agree_on_a_thousand_broken_files(name):
    kind, sample = KINDS[name]
    tried = broken = 0
    for at in ways(sample):
        for wrong in WRONG:
            value = changed(sample, (at, wrong))
            ours = fits(kind, parse(as_yaml(value)).value)
            assert VALIDATORS[name].is_valid(value) == ours, (at, wrong)
            tried, broken = tried + 1, broken + (not ours)

    assert broken > 0.6 * tried


WIDER = {"model": (Model, WIDE), "server": (Server, WIDE_SERVER), "keys": (ClientKey, WIDE_KEY)}


def broken(sample: dict[str, Any]) -> list[tuple[tuple[str | int, ...], Any]]:
    """A change for each place in a sample: the wrong values in turn, so that each kind of place has several."""
    return [(at, WRONG[(7 * index) % len(WRONG)]) for index, at in enumerate(ways(sample))]


@pytest.mark.parametrize("name", WIDER)
def test_an_editor_and_we_agree_on_every_field_that_is_broken(name):
    kind, sample = WIDER[name]
    assert VALIDATORS[name].is_valid(sample)
    assert fits(kind, sample)

    tried = broken(sample)
    for at, wrong in tried:
        value = changed(sample, (at, wrong))
        assert VALIDATORS[name].is_valid(value) == fits(kind, parse(as_yaml(value)).value), (at, wrong)

    assert len(tried) >= {"model": 150, "server": 60, "keys": 9}[name]


ONLY_WE_SAY = {
    "a size out of range": (("profiles", 0, "disk"), "9999999TiB"),
    "a duration out of range": (("health", "interval"), "900w"),
    "a range that ends before it begins": (("profiles", 0, "gpu", "memory"), "80GB..40GB"),
}
"""What text stands for is more than a pattern can compare."""


@pytest.mark.parametrize("name", ONLY_WE_SAY)
def test_what_a_pattern_cannot_compare_only_we_say(name):
    value = changed(WIDE, ONLY_WE_SAY[name])

    assert VALIDATORS["model"].is_valid(value)
    assert not fits(Model, value)


@pytest.mark.parametrize(("name", "at"), [(name, at) for name in WIDER for at in mappings(WIDER[name][1])])
def test_an_editor_and_we_refuse_a_key_that_is_not_known(name, at):
    kind, sample = WIDER[name]
    value = changed(sample, ((*at, "colour"), "red"))

    assert not VALIDATORS[name].is_valid(value)
    assert not fits(kind, value)


@pytest.mark.parametrize("value", [[MODEL], [MODEL, changed(MODEL, (("name",), "b"), (("aliases",), []))]])
def test_a_list_of_models_is_a_file_to_an_editor_too(value):
    assert VALIDATORS["model"].is_valid(value)
    assert read_models("catalog/a.yaml", as_yaml(value)).problems == ()


@pytest.mark.parametrize("value", [[], [3], 3, None, [[MODEL]]])
def test_what_is_no_model_and_no_list_of_them_is_refused_by_both(value):
    assert not VALIDATORS["model"].is_valid(value)
    assert read_models("catalog/a.yaml", as_yaml(value)).problems


@pytest.mark.parametrize("name", KINDS)
def test_every_field_says_what_it_is(name):
    whole = schema.of(KINDS[name][0])

    for part in (whole, *whole.get("$defs", {}).values()):
        for key in part.get("properties", ()):
            described = part["properties"][key].get("description", "")
            assert described.endswith("."), f"{part['title']}: {key}"


PAGE = (ROOT / "docs" / "catalog.md").read_text()


def test_the_page_says_what_the_types_say():
    assert reference.fill(PAGE) == PAGE, "run: llmgw schema --write"


@pytest.mark.parametrize("section", reference.sections(), ids=lambda section: section.title)
def test_every_field_is_in_the_page_with_its_effect_and_its_default(section):
    part = schema.of(section.kind)

    assert f"## {section.heading}\n" in PAGE
    for key in part["properties"]:
        row = rf"^\| {re.escape(section.heading)} \| `{key}` \| [^|]+ \| "
        assert f"### `{key}`\n" in PAGE
        assert re.search(rf"{row}(\*planned\*)? \|$", PAGE, re.MULTILINE), f"no effect of {key}"
        if key not in part.get("required", ()):
            assert re.search(rf"{row}[^|]+ \|$", PAGE, re.MULTILINE), f"no default of {key}"


@pytest.mark.parametrize("title", reference.EXAMPLES)
def test_every_section_of_the_page_has_an_example_that_is_read(title):
    """Each is a piece of a file: what is missing around it is filled in, and nothing of it is refused."""
    document = parse(reference.EXAMPLES[title].encode())
    assert document.findings == ()
    piece = document.value
    assert isinstance(piece, dict)
    for kind, sample in ((Model, MODEL), (Server, SERVER), (ClientKey, KEY)):
        keys = {field.alias or name for name, field in kind.model_fields.items()}
        if set(piece) <= keys:
            whole = {**sample, **piece}
            assert fits(kind, whole), title
            return
    assert set(piece) <= {field.alias or name for name, field in Profile.model_fields.items()}
    assert fits(Model, {**MODEL, "profiles": [{**MODEL["profiles"][0], **piece}]}), title


def test_a_page_that_says_something_else_is_put_right():
    stale = PAGE.replace("| `100` |", "| `99` |")

    assert stale != PAGE
    assert reference.fill(stale) == PAGE
