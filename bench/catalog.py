"""Reading a catalog: the first time, and after one file changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import yaml

from bench.row import Row, least
from llmgw.catalog import canonical, rules
from llmgw.catalog.check import read_fleet
from llmgw.catalog.model import Model
from llmgw.catalog.parse import parse

T = TypeVar("T")

FILES = 2000
TEXT = """# yaml-language-server: $schema=../schema/model.schema.json
name: model-{n}
description: One of many, to measure with.
aliases: [alias-{n}]
owner: team-{team}
source:
  from: https://hub.example/model-{n}.gguf
  version: "2026-11"
context_length: 32768
max_output: 4096
class: standard
profiles:
  - name: gpu
    engine: llamacpp
    gpu: {{class: l40s-48g, count: 1}}
    parallel: 4
    replicas: 7
    priority: 100
    memory_gib: 8
  - name: cpu
    engine: llamacpp
    memory_gib: 24
    cpu_cores: 8
    parallel: 2
    replicas: {n}
    priority: 10
"""
SERVER = b"schema: 1\ncluster: lab\nnodes: [{name: n1, address: 10.0.0.1}]\nmirror: {base: 'http://a:1', api: 'http://a:2'}\n"
DEFAULTS = b"defaults: {license: Apache-2.0, routing: {retries: 1}, profile: {start_timeout: 15m}}\n"


def rows() -> Iterator[Row]:
    files = {f"catalog/m{n}.yaml": TEXT.format(n=n, team=n % 9).encode() for n in range(FILES)}

    def each(work: Callable[[T], object], over: Iterable[T], *, times: int = 3) -> float:
        values = list(over)
        return least(lambda: [work(value) for value in values], times=times) / FILES * 1000

    peer = each(lambda data: yaml.load(data, Loader=yaml.CSafeLoader), files.values())
    yield Row("catalog: read one file, with positions", each(parse, files.values()), "ms CPU", "CSafeLoader", peer)
    # What a first load is made of, apart.
    raw = [parse(data).value for data in files.values()]
    models = [Model.model_validate(value, by_name=False) for value in raw]
    yield Row("catalog: pydantic, one file", each(lambda v: Model.model_validate(v, by_name=False), raw), "ms CPU")
    yield Row("catalog: our rules, one file", each(lambda m: list(rules.problems(m)), models), "ms CPU")
    yield Row("catalog: canonical form, one model", each(canonical.spec, models), "ms CPU")
    for name, server in (("", SERVER), (", under defaults", SERVER + DEFAULTS)):
        whole = {"server.yaml": server, **files}
        first = least(lambda whole=whole: read_fleet(whole), times=1) / FILES * 1000
        yield Row(f"catalog: a file read and checked, first load{name}", first, "ms CPU", must=6000 / 5000)
        changed = [{**whole, "catalog/m7.yaml": TEXT.format(n=n, team=1).encode()} for n in range(9000, 9005)]
        turn = iter(changed)
        again = least(lambda turn=turn: read_fleet(next(turn)), times=5) * 1000 * 5000 / FILES
        yield Row(f"catalog: 5,000 files, one changed{name}", again, "ms CPU", must=150)
