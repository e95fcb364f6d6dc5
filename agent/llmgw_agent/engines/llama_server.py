"""llama.cpp's server out of a wheel, behind llama-server's own flags.

`python -m llmgw_agent.engines.llama_server -m FILE --port 7500 …`: the adapter
starts this or an installed llama-server with the same command line. It is the
real server, for CPUs, and takes the flags that make sense there; one it does
not know ends it as it ends the real one.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

END_S = 2
"""How long it may take to end once asked, requests under way included."""

CACHE_TYPES = ("f32", "f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")


class Flags(argparse.ArgumentParser):
    """llama-server's flags, and its words for one it does not know."""

    def __init__(self) -> None:
        super().__init__(prog="llama-server", allow_abbrev=False, description="llama.cpp's server, for CPUs.")
        add = self.add_argument
        add("-m", "--model", required=True)
        add("--host", default="127.0.0.1")
        add("--port", type=int, default=8080)
        add("-a", "--alias", default="")
        add("-c", "--ctx-size", type=int, default=0)
        add("-np", "--parallel", type=int, default=1)
        add("-t", "--threads", type=int)
        add("-tb", "--threads-batch", type=int)
        add("-b", "--batch-size", type=int)
        add("-ub", "--ubatch-size", type=int)
        add("-n", "--predict", type=int)
        add("-fa", "--flash-attn", choices=("on", "off", "auto"))
        add("-ctk", "--cache-type-k", choices=CACHE_TYPES)
        add("-ctv", "--cache-type-v", choices=CACHE_TYPES)
        add("-cram", "--cache-ram", type=int)
        add("-fit", "--fit", choices=("on", "off"))
        add("-dev", "--device", choices=("none",))
        add("--pooling", choices=("none", "mean", "cls", "last", "rank"))
        add("--embedding", "--embeddings", dest="embeddings", action="store_true")
        add("--api-key-file")
        add("--cors-origins")
        add("--metrics", action="store_true")
        add("--slots", action=argparse.BooleanOptionalAction, default=True)
        add("--no-ui", "--no-webui", dest="no_ui", action="store_true")
        add("--warmup", action=argparse.BooleanOptionalAction, default=True)

    def names(self) -> frozenset[str]:
        """Every flag there is."""
        return frozenset(flag for action in self._actions for flag in action.option_strings)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong as llama-server does, and end as it does."""
        unknown = message.removeprefix("unrecognized arguments: ")
        fail(f"error: {message}" if unknown == message else f"error: invalid argument: {unknown.split()[0]}")


def fail(message: str) -> NoReturn:
    """One line on stderr, and exit code 1."""
    sys.stderr.write(message + "\n")
    sys.exit(1)


def parameters(flags: argparse.Namespace) -> Any:
    """The server's own parameters, from flags."""
    import xllamacpp as llama  # noqa: PLC0415 - a wheel of its own: a wrong flag is said without loading it

    p = llama.CommonParams()
    p.model.path = flags.model
    p.hostnames, p.port = [flags.host], flags.port
    p.n_ctx, p.n_parallel = flags.ctx_size, flags.parallel
    p.model_alias = {flags.alias} if flags.alias else set()
    p.endpoint_metrics, p.endpoint_slots, p.ui = flags.metrics, flags.slots, not flags.no_ui
    p.embedding, p.warmup = flags.embeddings, flags.warmup
    # Without cards there is nothing to fit, and a changed context would be a broken promise.
    p.fit_params = flags.fit == "on"
    if flags.threads:
        p.cpuparams.n_threads = flags.threads
    if flags.threads_batch:
        p.cpuparams_batch.n_threads = flags.threads_batch
    given = {
        "n_batch": flags.batch_size,
        "n_ubatch": flags.ubatch_size,
        "n_predict": flags.predict,
        "cache_ram_mib": flags.cache_ram,
        "cors_origins": flags.cors_origins,
    }
    for name, value in given.items():
        if value is not None:
            setattr(p, name, value)
    if flags.pooling:
        p.pooling_type = getattr(llama.llama_pooling_type, f"LLAMA_POOLING_TYPE_{flags.pooling.upper()}")
    if flags.flash_attn:
        word = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}[flags.flash_attn]
        p.flash_attn_type = getattr(llama.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{word}")
    for which in ("k", "v"):
        if kind := getattr(flags, f"cache_type_{which}"):
            setattr(p, f"cache_type_{which}", getattr(llama.ggml_type, f"GGML_TYPE_{kind.upper()}"))
    if flags.api_key_file:
        p.api_keys = keys(Path(flags.api_key_file))
    return p


def keys(file: Path) -> list[str]:
    """The keys in a file, one a line."""
    try:
        found = [line.strip() for line in file.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as e:
        fail(f"error: the key file {file} cannot be read: {e}")
    # None would open it to everybody.
    return found or fail(f"error: the key file {file} is empty")


def end(number: int, frame: object) -> NoReturn:
    """Leave; and if the server does not let go in time, have the kernel end us."""
    del number, frame
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(END_S)
    sys.exit(0)


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM."""
    flags = Flags().parse_args(argv)
    try:
        import xllamacpp as llama  # noqa: PLC0415 - see parameters
    except ImportError as e:
        fail(f"error: the embedded llama.cpp is not installed ({e}); install llmgw-agent[embedded]")
    try:
        # Back once it has loaded, so until then SIGTERM has its usual effect, at once.
        server = llama.Server(parameters(flags))
    except RuntimeError as e:
        fail(f"error: {e}")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    while server.listening_address:
        signal.pause()


if __name__ == "__main__":
    main()
