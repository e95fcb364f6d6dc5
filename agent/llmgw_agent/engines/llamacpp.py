"""llama.cpp: the server that is installed on the node, or the one that comes as a wheel, behind the same flags."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from llmgw_agent.dossier import Fault, Signs
from llmgw_agent.engines import flags
from llmgw_agent.engines.ask import Endpoint, NoAnswerError, ask
from llmgw_agent.engines.base import Launch, Seen, Vitals
from llmgw_agent.engines.llama_server import Flags
from llmgw_agent.protocol import Claim, EngineSpec, InstalledEngine
from llmgw_agent.speed import Work

EMBEDDED: tuple[str, ...] = (sys.executable, "-I", "-m", "llmgw_agent.engines.llama_server")

OURS = frozenset(
    {
        "-m",
        "--model",
        "--host",
        "--port",
        "-a",
        "--alias",
        "--api-key",
        "--api-key-file",
        "-np",
        "--parallel",
        "-c",
        "--ctx-size",
        "--embedding",
        "--embeddings",
        "--metrics",
        "--slots",
        "--no-slots",
        "--props",
        "-dev",
        "--device",
        "--reuse-port",
        "--ssl-key-file",
        "--ssl-cert-file",
    }
)
"""Flags that the agent sets, or whose absence it relies on."""

DANGEROUS = frozenset(
    {
        "--tools",
        "--ui-mcp-proxy",
        "--mcp-config",
        "-hf",
        "--hf-repo",
        "-hff",
        "--hf-file",
        "-hft",
        "--hf-token",
        "-mu",
        "--model-url",
        "-dr",
        "--docker-repo",
        "--rpc",
        "--models-dir",
        "--models-preset",
        "--path",
        "--slot-save-path",
        "--media-path",
        "--log-file",
        "--api-prefix",
    }
)
"""Flags that download, reach other hosts, or open the machine's files to whoever asks."""

CPU_BATCH = 256
"""Tokens of a prompt worked on at a time without a card. A batch is not
interrupted, so other slots and our own questions wait for one; with the
default of 2048 that was 11.6 s on one thread, even with a model of 135M."""

CACHE_RAM_SHARE = 16
"""The cache of prompts in host memory gets this part of what is claimed. Its default of 8 GiB is nobody's claim."""
CACHE_RAM_MIB = 2048

PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


class LlamaCpp:
    """The adapter for llama-server, installed or embedded."""

    name = "llamacpp"
    signs: Signs = (
        ("bad_flags", r"error: (invalid |unknown )?argument|error while handling argument|arguments are required"),
        ("port", r"couldn't bind|address already in use"),
        ("out_of_memory", r"out of memory|std::bad_alloc|cannot allocate memory|ErrorOutOf(Device|Host)Memory"),
        ("out_of_memory", r"(failed|unable) to allocate"),
        ("weights", r"failed to open GGUF|invalid magic|unknown model architecture|not within the file bounds"),
        ("weights", r"error loading model|failed to load model|missing tensor|corrupted or incomplete"),
        ("device", r"no CUDA-capable device|CUDA driver version is insufficient|failed to initialize (CUDA|ROCm)"),
        ("device", r"no usable GPU found|CUDA error|invalid device"),
    )

    def choose(self, installed: tuple[InstalledEngine, ...], devices: tuple[str, ...], version: str) -> InstalledEngine:
        """An installed build before the embedded one, which is for CPUs and never serves cards; of those the newest.

        One whose version is not known may be any: it is asked when it is about to be started.
        """
        mine = [e for e in installed if e.name == self.name]
        able = [e for e in mine if not devices or (e.build == "installed" and e.accelerators != ("cpu",))]
        fits = [e for e in able if version in ("", e.version)] or [e for e in able if not e.version]
        if fits:
            return min(fits, key=lambda e: (e.build != "installed", -_number(e.version)))
        if able:
            there = ", ".join(sorted({e.version for e in able}))
            why = f"version {version} is asked for, and this node has {there}"
            do = f"install {version} beside it, or change engine_version in the profile"
        elif mine:
            why, do = "the llama.cpp on this node is for CPUs", "install a llama-server built for these cards"
        else:
            why = "this node has no llama.cpp"
            do = "put llama-server on the PATH or behind --engine-path, or install llmgw-agent[embedded]"
        raise Fault("engine_missing", "the engine was not started", why=why, do=do)

    def model(self, weights: Path) -> Path:
        """The one GGUF file there is, or the first part of a set that is complete."""
        files = sorted(weights.rglob("*.gguf")) if weights.is_dir() else [weights]
        first = [f for f in files if (found := PART.fullmatch(f.name)) and int(found[2]) == 1]
        whole = [f for f in files if not PART.fullmatch(f.name)]
        candidates = first + whole
        if len(candidates) != 1:
            why = f"it has {len(candidates)} models in GGUF format" if candidates else _no_start(files)
            raise Fault("weights", f"{weights.name} was not loaded", why=why, do="name exactly one model in the source")
        chosen = candidates[0]
        if found := PART.fullmatch(chosen.name):
            parts = [chosen.with_name(f"{found[1]}-{n:05}-of-{found[3]}.gguf") for n in range(1, int(found[3]) + 1)]
            missing = [p.name for p in parts if not p.is_file()]
            if missing:
                raise Fault(
                    "weights",
                    f"{chosen.name} was not loaded",
                    why=f"{len(missing)} of its {found[3]} parts are missing, {missing[0]} first",
                    do="let the source name every part; they are never merged",
                )
        return chosen

    async def command(self, launch: Launch) -> tuple[str, ...]:
        """llama-server's command line, as far as this build knows the flags."""
        spec = launch.spec
        for word in spec.args:
            flag = word.partition("=")[0]
            if flag in OURS | DANGEROUS:
                why = "the agent chooses it" if flag in OURS else "it opens this machine to whoever asks"
                raise Fault("bad_flags", f"args may not set {flag}", why=why, do="take it out of the profile's args")
        program, known = EMBEDDED, Flags().names()
        if launch.engine.build == "installed":
            program = (launch.engine.path,)
            if spec.engine_version and not launch.engine.version:
                await self._check_version(launch)
            known = await flags.known(program, self.environment(launch))
        words: list[str] = [
            *program,
            *("-m", str(launch.model), "--host", launch.address, "--port", str(launch.port)),
            *("--alias", spec.served_name, "-c", str(spec.context_tokens), "--parallel", str(spec.parallel)),
            *("-t", str(spec.threads), "--api-key-file", str(launch.key_file), "--metrics"),
        ]
        cache_mib = min(CACHE_RAM_MIB, spec.claim.memory_bytes // CACHE_RAM_SHARE >> 20)
        optional: list[tuple[str, ...]] = [
            ("--slots",),
            ("--no-ui",) if "--no-ui" in known else ("--no-webui",),
            ("--cache-ram", str(cache_mib)),
            # Its default changes what was not said to what fits, and so breaks the claim.
            ("--fit", "off"),
            ("--cors-origins", "localhost"),
        ]
        if not launch.devices:
            optional.append(("--device", "none"))
        words += [word for group in optional if group[0] in known for word in group]
        if launch.devices:
            words += ["-ngl", "999"]
        if spec.kind == "embedding":
            # An input is worked on in one batch, or refused.
            whole = str(max(1, spec.context_tokens // spec.parallel))
            words += ["--embeddings", "-b", whole, "-ub", whole]
        elif not launch.devices:
            words += ["-b", str(CPU_BATCH), "-ub", str(CPU_BATCH)]
        return (*words, *spec.args)

    async def _check_version(self, launch: Launch) -> None:
        """Refuse a program that is of another version than the one asked for, or does not say."""
        asked, path = launch.spec.engine_version, launch.engine.path
        said = await flags.said((path, "--version"), self.environment(launch))
        found = re.search(r"^version: (\d+)", said, re.MULTILINE)
        if found is None or asked != f"b{found[1]}":
            is_ = f"is b{found[1]}" if found else "does not say its version"
            why = f"version {asked} is asked for, and {path} {is_}"
            do = f"install {asked} beside it, or change engine_version in the profile"
            raise Fault("engine_missing", "the engine was not started", why=why, do=do)

    def environment(self, launch: Launch) -> dict[str, str]:
        """Exactly its cards by UUID, or none: an empty list hides them all, an absent one shows them all."""
        visible = ",".join(launch.devices)
        return {"CUDA_VISIBLE_DEVICES": visible, "HIP_VISIBLE_DEVICES": visible, "ROCR_VISIBLE_DEVICES": visible}

    def recognise(self, words: Sequence[str], environment: Mapping[str, str]) -> Seen | None:
        """What `command` and `environment` made, read back."""
        # The first of each counts: a profile's own come last, and may not set these.
        given = dict(reversed(list(pairwise(words))))
        devices = tuple(d for d in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if d)
        try:
            spec = EngineSpec(
                engine=self.name,
                served_name=given["--alias"],
                kind="embedding" if "--embeddings" in words else "chat",
                context_tokens=int(given["-c"]),
                parallel=int(given["--parallel"]),
                threads=int(given["-t"]),
                claim=Claim(0, int(given["-t"]), len(devices)),
            )
            return Seen(spec, Path(given["-m"]), given["--host"], int(given["--port"]), devices)
        except (KeyError, ValueError):
            return None

    async def ready(self, at: Endpoint, *, within_s: float) -> bool:
        """/health says loaded, /v1/models says who it is, and one token really comes."""
        try:
            if (await ask(at, "/health", within_s=5)).status != 200:
                return False
            named = await ask(at, "/v1/models", within_s=5)
        except NoAnswerError:
            return False
        if named.status == 401:
            raise Fault("port", f"port {at.port} answers", why="it is another program's", do="free the port")
        names = _names(named.value)
        if at.served_name not in names:
            why = f"it calls itself {', '.join(sorted(names)) or 'nothing'}, and {at.served_name} was expected"
            raise Fault(
                "identity", f"the engine on port {at.port} is not the one started", why=why, do="look at its log"
            )
        path, body = "/v1/completions", {"prompt": "a", "max_tokens": 1, "cache_prompt": False}
        if at.kind == "embedding":
            path, body = "/v1/embeddings", {"input": "a"}
        try:
            first = await ask(at, path, body=body, within_s=within_s)
        except NoAnswerError as e:
            raise Fault(
                "timeout", "the engine loaded and generates nothing", why=str(e), do="look at its log"
            ) from None
        if first.status == 503:
            return False
        if first.status != 200:
            why = f"its first answer is {first.status}: {first.text[:200]}"
            raise Fault("exited", "the engine loaded and does not work", why=why, do="look at its log")
        return True

    async def vitals(self, at: Endpoint, *, within_s: float) -> Vitals:
        """Its slots: how many work, and how far each is."""
        reply = await ask(at, "/slots", within_s=within_s)
        if reply.status != 200:
            # It was started with --no-slots, or is a build that does not know them.
            return Vitals(busy=None, mark=())
        value = reply.value
        if not isinstance(value, list):
            raise NoAnswerError("/slots: what it answers is no list of slots")
        slots = [s for s in value if isinstance(s, dict)]
        return Vitals(sum(bool(s.get("is_processing")) for s in slots), tuple(_mark(s) for s in slots))

    async def work(self, at: Endpoint, *, within_s: float) -> Work | None:
        """Its counters. How many slots were at work it gives as an average over all steps."""
        reply = await ask(at, "/metrics", within_s=within_s)
        values = dict(re.findall(r"^llamacpp:(\w+) ([0-9.e+-]+)$", reply.text, re.MULTILINE))
        tokens, seconds = (_figure(values, f"tokens_predicted{which}_total") for which in ("", "_seconds"))
        if tokens is None or seconds is None:
            return None
        steps, slots = (_figure(values, name) for name in ("n_decode_total", "n_busy_slots_per_decode"))
        return Work(tokens, seconds, steps, None if steps is None or slots is None else steps * slots)


def _number(version: str) -> int:
    """Of a build: the newest has the highest. 0 where it is not known."""
    found = re.search(r"\d+", version)
    return int(found[0]) if found else 0


def _no_start(files: list[Path]) -> str:
    return f"the first part of {files[0].name} is missing" if files else "there is no GGUF file in it"


def _names(value: object) -> set[str]:
    data = value.get("data") if isinstance(value, dict) else None
    models = [m for m in data if isinstance(m, dict)] if isinstance(data, list) else []
    return {str(m.get("id")) for m in models}


def _mark(slot: dict[str, object]) -> tuple[object, ...]:
    """What changes whenever this slot does anything."""
    following = slot.get("next_token")
    first = following[0] if isinstance(following, list) and following else following
    decoded = first.get("n_decoded") if isinstance(first, dict) else None
    counters = slot.get("id_task"), slot.get("n_prompt_tokens_processed"), decoded
    # Only whole numbers count: NaN is unlike itself, and would always seem to move.
    return tuple(n if isinstance(n, int) else None for n in counters)


def _figure(values: dict[str, str], name: str) -> float | None:
    """A metric; None where there is none, or none that is a number."""
    try:
        figure = float(values[name])
    except (KeyError, ValueError):
        return None
    return figure if math.isfinite(figure) else None
