"""Whether this fleet could run a repository of a hub, and which of its file sets: by the ways of `llmgw estimate`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from msgspec import Struct

from llmgw.cli.explore_look import Looked
from llmgw.planning.architectures import architecture
from llmgw.planning.context import LEAST_CONTEXT, most_context
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.machines import Machine
from llmgw.planning.need import Files
from llmgw.planning.shape import ModelShape
from llmgw.planning.speed import pace
from llmgw.planning.way import State, Way
from llmgw.planning.ways import Wish, ways
from llmgw.sources.hub_sets import FileSet, Kind
from llmgw.sources.hub_text import plain

RUNS = "runs"
BY_SIZE = "by the size of its files only"


class Verdict(Struct, frozen=True, omit_defaults=True):
    """Whether a fleet runs a file set, and how."""

    runs: bool
    kind: str
    """`runs`, or in a word or two why not, as it is counted: `too large`, `unknown architecture`."""
    text: str
    """The sentence."""
    engine: str = ""
    where: str = ""
    """The place that it is of: `one l40s-48g`, `CPU`."""
    context: int | None = None
    """Tokens of a request that it has room for."""
    tps: float | None = None
    """Tokens a second of one reply. None: not known, or it does not run."""
    short_bytes: int = 0
    """What the nearest place is short of."""


PICKLED = Verdict(
    runs=False,
    kind="pickled weights",
    text="does not run: loading pickled weights runs whatever code is in them; look for safetensors or GGUF",
)


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, and the file set that it is of. None: there is none to speak of."""

    file_set: FileSet | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Judge:
    """What decides: the machines, and how much context is wanted of them."""

    machines: tuple[Machine, ...]
    how: str
    """Where they are known from."""
    context: int = 0
    """Tokens of a request. 0: as trained, and less where there is no room for that."""

    def of(self, looked: Looked, models: Iterable[FileSet]) -> Judged:
        """The first of some file sets that runs; where none does, why the smallest does not.

        Args:
            looked: the repository.
            models: of its file sets, the one that is meant first.
        """
        sets = list(models)
        if not sets:
            return Judged(None, none_of(looked))
        if why := _unserved(looked):
            return Judged(sets[0], why)
        judged = []
        for file_set in sets:
            judged.append(self.of_set(looked, file_set))
            if judged[-1].verdict.runs and not slow(judged[-1].verdict):
                return judged[-1]
        runs = (each for each in judged if each.verdict.runs)
        return next(runs, judged[sets.index(min(sets, key=lambda s: s.bytes))])

    def of_set(self, looked: Looked, file_set: FileSet) -> Judged:
        """One file set."""
        if why := _unserved(looked):
            return Judged(file_set, why)
        if not file_set.bytes:
            return Judged(file_set, Verdict(runs=False, kind="empty", text="does not run: its files are empty"))
        shape = _shape(looked, file_set)
        files = Files(file_set.name or looked.found.id, shape, file_set.bytes)
        wanted = self.context or shape.context or looked.found.context or LEAST_CONTEXT
        found = self._ways(files, wanted)
        if not found:
            text = "not known: no machine is known that could run it"
            return Judged(file_set, Verdict(runs=False, kind="no machine", text=text))
        return Judged(file_set, self._said(looked, files, found[0], wanted))

    def _said(self, looked: Looked, files: Files, best: Way, wanted: int) -> Verdict:
        """The best way; with less context than the model was trained for, where only that fits or is quicker."""
        tokens = wanted
        if not self.context and not (best.fits and _on_cards(best)):
            least = min(LEAST_CONTEXT, wanted)
            near = self._ways(files, least)[0]
            if near.state is not State.NO and _worth(near) > _worth(best):
                tokens = most_context(lambda n: self._way_at(files, n, near) is not None, wanted)
                best = self._way_at(files, tokens, near) or near
        kind = {State.NO_ENGINE: "no engine for it", State.NO: "too large"}.get(best.state, RUNS)
        if best.problems and best.state is State.NO:
            kind = "not for these cards"
        words = [best.sentence]
        words += [f"with {tokens} of {wanted} tokens of context"] if tokens < wanted else []
        words += [BY_SIZE] if looked.shape is None else []
        return Verdict(
            runs=best.fits,
            kind=kind,
            text=", ".join(words),
            engine=best.engine,
            where=best.where,
            context=tokens if best.fits else None,
            tps=best.tps if best.fits else None,
            short_bytes=sum(short.missing for short in best.short),
        )

    def _way_at(self, files: Files, tokens: int, like: Way) -> Way | None:
        """The way of the same place with another context. None: it does not fit there."""
        return next((w for w in self._ways(files, tokens) if w.state is like.state and _alike(w) == _alike(like)), None)

    def _ways(self, files: Files, tokens: int) -> tuple[Way, ...]:
        return ways([files], self.machines, Wish(options=LlamaOptions(context=tokens), cures=False))


def _shape(looked: Looked, file_set: FileSet) -> ModelShape:
    """The shape of one file set. All of a repository are the same model, so what was read of another serves for it."""
    shape = looked.shape or ModelShape(architecture=looked.found.architecture, format=file_set.format)
    if shape.format != file_set.format:
        return replace(shape, format=file_set.format, file_type="", quantization="", weights=None)
    return replace(shape, file_type=file_set.quantisation) if file_set.quantisation and looked.shape else shape


def slow(verdict: Verdict) -> bool:
    """Whether a smaller file set is tried, since a reply of this one takes minutes."""
    return verdict.tps is not None and pace(verdict.tps) == "very slow"


def _worth(way: Way) -> tuple[int, float]:
    """What makes one way better than another: that it can be done sooner, then its speed."""
    return -list(State).index(way.state), way.tps or 0.0


def _alike(way: Way) -> tuple[object, ...]:
    """What two ways have in common that differ in context, and so in how many layers the cards hold."""
    return way.engine, way.place, way.is_partial, bool(way.options.cpu_moe)


def _on_cards(way: Way) -> bool:
    return way.place.count > 0 and not way.is_partial and not way.options.cpu_moe


def _unserved(looked: Looked) -> Verdict | None:
    """Why no machine at all would run it. None: that is not said."""
    shape, found, said = looked.shape, looked.found, looked.architecture
    if shape is not None and shape.known:
        return None
    if shape is not None and architecture(shape.architecture):
        why = "its header has no layers: it may be an adapter, or a vocabulary alone"
        return Verdict(runs=False, kind="no whole model", text=f"does not run: {why}")
    if shape is None and architecture(said):
        return None
    if looked.problem is not None and not found.gated:
        return Verdict(runs=False, kind="unreadable", text=f"not known: {plain(looked.problem.what, 200)}")
    called = f"the architecture {said} is unknown here" if said else "its architecture is not said"
    return Verdict(runs=False, kind="unknown architecture", text=f"does not run: {called}")


def none_of(looked: Looked) -> Verdict:
    """Why a repository has nothing that could be run."""
    if looked.found.disabled:
        return Verdict(runs=False, kind="disabled", text="does not run: the hub gives it to nobody")
    if looked.held is None:
        what = plain(looked.problem.what, 200) if looked.problem else "it could not be listed"
        return Verdict(runs=False, kind="unreadable", text=f"not known: {what}")
    kinds = {s.kind for s in looked.held.sets}
    if Kind.MODEL in kinds:
        return Verdict(runs=False, kind="incomplete", text="does not run: parts of its files are missing")
    if Kind.PICKLED in kinds:
        return PICKLED
    if kinds:
        what = "an adapter" if Kind.ADAPTER in kinds else "a projector"
        return Verdict(runs=False, kind="no whole model", text=f"does not run alone: it is {what} of another model")
    return Verdict(runs=False, kind="no weights", text="does not run: it has no GGUF or safetensors files")
