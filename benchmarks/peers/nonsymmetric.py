"""Time samples of NDPPs beside the code that Han et al. published with their two papers of 2022, in turns, on one core.

    NDPP_MCMC_SAMPLING=… NONSYMMETRIC_DPP_SAMPLING=… python benchmarks/peers/nonsymmetric.py -o benchmarks/results/nonsymmetric.json

The two variables name checkouts of ``insuhan/ndpp-mcmc-sampling`` and ``insuhan/nonsymmetric-dpp-sampling``; without one of them, its
samplers are left out. The peer has its own environment and process, which waits while this one draws. Times are CPU times per sample,
the means of the rounds. Walks are timed per step, both from the same exact sample, and counted with k² steps; rejection samplers are
timed per proposal and counted with the expected number of proposals. Preparation is not counted. Rejections per step, and sizes of
samples and proposals, show that both sides draw from the same distribution.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ndpp import LowRankKernel
from ndpp._atomic import replacing
from ndpp.samplers import Cholesky, DirectUp, Exact, Rejection, RejectionUp, Walk
from ndpp.samplers.rejection import minor_ratio
from ndpp_experiments.kernels import from_files
from ndpp_experiments.record import machine, measured_here

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from symmetric import Peer, environment  # noqa: E402

PACKAGES = ("torch==2.13.0", "numpy", "tqdm")
Json = dict[str, Any]
Own = dict[str, Callable[[Json], Json]]
"""Samplers of this library by name: from a request to its answer, as the peer gives it."""


class Code(NamedTuple):
    """The variable that names the checkout, a file that it has, and our sampler of the same algorithm."""

    variable: str
    file: str
    same: str


CODES = {
    "walk": Code("NDPP_MCMC_SAMPLING", "kndpp.py", "Walk(RejectionUp)"),
    "cholesky": Code("NONSYMMETRIC_DPP_SAMPLING", "sampling/cholesky_sampling.py", "Cholesky"),
    "rejection": Code("NONSYMMETRIC_DPP_SAMPLING", "sampling/rejection_sampling.py", "Rejection"),
}


@dataclass(frozen=True)
class Task:
    """What is timed: units per round and per sample of the peer, our samplers, and starts of walks."""

    count: int
    units: float
    own: Own
    start: Callable[[int], list[int]] | None


def timed(call: Callable[[np.random.Generator], tuple[list[int], list[int]]], seed: int) -> Json:
    rng, began = np.random.default_rng(seed), time.process_time()
    sizes, rejections = call(rng)
    return {"seconds": time.process_time() - began, "sizes": sizes, "rejections": rejections}


def walking(kernel: LowRankKernel, size: int, count: int) -> Task:
    """Return the steps of both up-steps and whole samples of ``Exact``; each walk starts at an exact sample."""
    exact = Exact.prepare(kernel, size=size)

    def steps(up: Any) -> Callable[[Json], Json]:
        chain = Walk.prepare(kernel, size=size, up=up)

        def run(request: Json) -> Json:
            state, rejections = chain.init(None, request["start"]), []

            def call(rng: np.random.Generator) -> tuple[list[int], list[int]]:
                nonlocal state
                for _ in range(request["count"]):
                    state, info = chain.step(rng, state)
                    rejections.append(int(info["rejections"]))
                return [len(state.items)], rejections

            return timed(call, request["seed"])

        return run

    own = {"Walk(RejectionUp)": steps(RejectionUp()), "Walk(DirectUp)": steps(DirectUp()), "Exact": whole(exact)}
    return Task(count, size**2, own, lambda i: exact.sample(1, rng=i).baskets[0].tolist())


def whole(sampler: Any) -> Callable[[Json], Json]:
    """Return a call that draws samples."""
    return lambda request: timed(
        lambda rng: ([len(sampler.draw(rng).rows) for _ in range(request["count"])], []), request["seed"]
    )


def of_any_size(kernel: LowRankKernel, code: str, count: int) -> Task:
    """Return whole samples, or proposals of the rejection sampler."""
    own = {"Exact": whole(Exact.prepare(kernel))}
    if code == "cholesky":
        return Task(count, 1.0, {"Cholesky": whole(Cholesky.prepare(kernel)), **own}, None)
    sampler = Rejection.prepare(kernel, max_proposals=np.inf)

    def propose(rng: np.random.Generator) -> int:
        rows = sampler.proposal.draw(rng).rows
        minor_ratio(kernel.q_rows(rows), kernel.coordinates.B, sampler.dominating)
        return len(rows)

    def proposals(request: Json) -> Json:
        return timed(lambda rng: ([propose(rng) for _ in range(request["count"])], []), request["seed"])

    return Task(count, sampler.expected_proposals, {"Rejection": proposals, **own}, None)


def compare(python: Path, code: str, folder: str, kernel: Path, task: Task, rounds: int) -> Json:
    """Return seconds per sample of the peer and of our samplers, and their ratios."""
    command = [str(python), str(HERE / "han_samples.py"), code, folder, str(kernel)]
    answers: dict[str, list[Json]] = {name: [] for name in ("peer", *task.own)}
    with Peer(command) as peer:
        preparation = json.loads(peer.answer())
        for i in range(-1, rounds):  # the first round compiles code and fills caches
            request = {"seed": i + 1, "count": task.count, "start": task.start(i + 1) if task.start else None}
            found = {"peer": json.loads(peer.answer(json.dumps(request)))}
            found |= {name: call(request | {"count": 5 * task.count}) for name, call in task.own.items()}
            for name, answer in found.items() if i >= 0 else ():
                answers[name].append(answer | {"seconds": answer["seconds"] / len(_units(answer))})
    seconds = {
        name: float(np.mean([one["seconds"] for one in given])) * (1.0 if name == "Exact" else task.units)
        for name, given in answers.items()
    }
    own = [name for name in seconds if name != "peer"]
    return {
        "code": code, "units": task.units, "seconds": seconds, "peer preparation": preparation,
        "ratio": {name: seconds["peer"] / seconds[name] for name in own},
        "check": {name: _mean([n for one in answers[name] for n in _units(one)]) for name in ("peer", CODES[code].same)},
        "rounds": {name: [one["seconds"] for one in given] for name, given in answers.items()},
    }  # fmt: skip


def _units(answer: Json) -> list[int]:
    """Return a number for each unit: the rejections of a step, or the size of a set."""
    return list(answer["rejections"] or answer["sizes"])


def _mean(values: list[int]) -> list[float]:
    return [float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))]


def tasks(kernel: LowRankKernel, sizes: list[int], count: int) -> dict[tuple[str, str], Callable[[], Task]]:
    """Return what to compare, by the peer's code and the task."""
    out: dict[tuple[str, str], Callable[[], Task]] = {
        ("walk", f"k = {size}"): partial(walking, kernel, size, count) for size in sizes
    }
    return out | {(code, "any size"): partial(of_any_size, kernel, code, 3) for code in ("cholesky", "rejection")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", nargs="+", default=["A", "B"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[10, 50])
    parser.add_argument("--steps", type=int, default=16, help="steps of the peer's walk per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("build/peers"), help="kernels and the environment go there")
    parser.add_argument("-o", "--output", type=Path, default=Path("nonsymmetric.json"))
    chosen = parser.parse_args()
    folders = {name: os.environ[code.variable] for name, code in CODES.items() if code.variable in os.environ}
    missing = [name for name, path in folders.items() if not (Path(path) / CODES[name].file).is_file()]
    if missing or not folders:
        variables = sorted({CODES[name].variable for name in missing or CODES})
        raise SystemExit(
            f"{' and '.join(variables)} must name checkouts of the published code; see {HERE / 'README.md'}"
        )
    chosen.folder.mkdir(parents=True, exist_ok=True)
    python = environment(chosen.folder, "han", PACKAGES)
    for named in (named for named in from_files(print) if named.name[-2] in chosen.kernels):
        path = chosen.folder / f"{named.name[-2]}.npz"
        np.savez(path, X=np.asarray(named.kernel.X), W=np.asarray(named.kernel.W))
        for (code, task), make in tasks(named.kernel, chosen.sizes, chosen.steps).items():
            if code in folders:
                record = compare(python, code, folders[code], path, make(), chosen.rounds)
                save(chosen.output, {"kernel": named.name[-2], "task": task, **record})


def save(path: Path, record: Json) -> None:
    """Add a record to the file in place of an older one, and print it."""
    key = [record[name] for name in ("kernel", "task", "code")]
    others = [
        one
        for one in measured_here(path).get("records", [])
        if [one[name] for name in ("kernel", "task", "code")] != key
    ]
    with replacing(path) as temporary:
        text = json.dumps({"machine": machine(), "records": [*others, record]}, indent=1)
        temporary.write_text(text + "\n", encoding="utf-8")
    ratios = ", ".join(f"{name} {ratio:.3g} times as fast" for name, ratio in record["ratio"].items())
    print(*key, f"{record['seconds']['peer']:.3g} s:", ratios, record["check"], flush=True)


if __name__ == "__main__":
    main()
