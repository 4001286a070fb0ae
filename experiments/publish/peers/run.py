"""Rank the held-out items of one split with several libraries, and compare them with the models of ndpp.

    NDPP_DATA=… python experiments/publish/peers/run.py --kernels kernels -o results/peers.json

See README.md in the folder above. A peer that cannot be installed or run is recorded with the last lines of the error. What a peer has
found is kept in the folder and used again; delete it there to run the peer anew. Models of an earlier run that are not run now stay in
the output.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ndpp
from ndpp import Baskets, metrics
from ndpp._atomic import replacing
from ndpp.metrics.estimates import Bootstrap, PerBasket, mean_estimates
from ndpp.metrics.ranking import HeldOut, Ranks, held_out_ranks, hold_out, without
from ndpp_experiments.record import machine

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from quality import N_VALIDATION, load  # noqa: E402 - the splits are those of quality.py

DATA = (
    "groceries", "amazon_apparel", "amazon_3cat", "uk_retail", "complete_journey", "foodcom", "instacart_train", "goodreads_toread",
)  # fmt: skip
SMALL, LARGE = DATA[:2], ("instacart_train",)
OWN = ("NDPP", "MixtureNDPP", "average")
N_TEST = 2000


class Peer(NamedTuple):
    """A script, the packages of its environment, none if it is this one, and the data sets that it is run on unless others are named."""

    script: str
    packages: tuple[str, ...]
    data: tuple[str, ...] = DATA


PEERS = {
    "linear": Peer("linear_models.py", ()),
    "sansa": Peer("sansa_models.py", ("sansa==1.1.0", "scikit-sparse==0.4.15"), LARGE),
    "implicit": Peer("implicit_models.py", ("implicit==0.7.3",)),
    "choice-learn": Peer("aleacarta.py", ("choice-learn==1.3.3", "tensorflow", "scipy"), SMALL),
}


def each_item(baskets: Baskets) -> HeldOut:
    """Hold each item of each basket out in turn."""
    baskets = baskets.select(min_size=2)
    owner = np.repeat(np.arange(len(baskets)), baskets.sizes)
    return without(baskets[owner], np.arange(len(owner)) - baskets.indptr[owner])


def written(held: HeldOut, weight: Any) -> dict[str, Any]:
    return {"rest": held.rest.to_lists(), "held": held.items.tolist(), "weight": np.asarray(weight).tolist()}


def run_peer(name: str, split: Path, folder: Path) -> list[dict[str, Any]]:
    """Return what a peer finds, run in an environment of its own; an error becomes a record."""
    peer, home, output = PEERS[name], folder / name, folder / f"{split.stem}-{name}.json"
    python = home / "bin" / "python" if peer.packages else Path(sys.executable)
    try:
        if output.exists():
            return list(json.loads(output.read_text(encoding="utf-8")))
        if not python.exists():
            venv.create(home, with_pip=True)
            command = [str(python), "-m", "pip", "install", "--quiet", *peer.packages]
            subprocess.run(command, check=True, capture_output=True, text=True)
        subprocess.run(
            [str(python), str(HERE / peer.script), str(split), str(output)],
            check=True,
            stderr=subprocess.PIPE,
            text=True,
        )
    except subprocess.CalledProcessError as failed:
        return [{"model": name, "error": (failed.stderr or "").strip()[-2000:]}]
    return list(json.loads(output.read_text(encoding="utf-8")))


def summary(found: dict[str, Ranks]) -> dict[str, dict[str, list[float]]]:
    """Return each metric of each model as [value, low, high], and by how much more often the mixture hits than it, basket by basket."""
    out, ours, average = {}, found.get("MixtureNDPP"), found.get("average")
    for name, ranks in found.items():
        values = {
            "MPR": ranks.percentile(),
            "hit rate@10": ranks.in_top(10),
            "MRR": ranks.reciprocal(),
            "NDCG@10": ranks.discounted(10),
        }
        if ours is not None and name not in OWN:
            values["behind"] = ours.in_top(10) - ranks.in_top(10)
            values |= {} if average is None else {"behind average": average.in_top(10) - ranks.in_top(10)}
        columns = [PerBasket(metric, value, 0) for metric, value in values.items()]
        estimates = mean_estimates(columns, Bootstrap(0.95, 1000, np.random.default_rng(0)))
        out[name] = {one.name: [one.value, one.low, one.high] for one in estimates}
    return out


def keep_ranks(path: Path, held: HeldOut, found: dict[str, Ranks]) -> None:
    """Write the held-out items, the numbers of candidates, and for each model how many are above the item and tied with it."""
    arrays: dict[str, Any] = {"items": held.items, "candidates": next(iter(found.values())).candidates}
    for name, ranks in found.items():
        arrays |= {f"above_{name}": ranks.above, f"ties_{name}": ranks.ties}
        arrays[f"ranks_{name}"] = 1 + ranks.above + ranks.ties / 2
    np.savez_compressed(path, allow_pickle=False, **arrays)


def read_ranks(path: Path) -> dict[str, Ranks]:
    """Return the ranks of our own models that :func:`keep_ranks` wrote; none if there is no such file."""
    if not path.exists():
        return {}
    with np.load(path) as file:
        every = np.ones(len(file["items"]), bool)
        return {
            name: Ranks(file[f"above_{name}"], file[f"ties_{name}"], file["candidates"], every)
            for name in OWN
            if f"above_{name}" in file
        }


def compare(
    data: str,
    peers: list[str],
    folder: Path,
    kernels: Path | None,
    kept_in: Path | None = None,
    own_in: Path | None = None,
) -> dict[str, Any]:
    """Return the metrics of all models on one data set, and how the peers were chosen."""
    train, validation, test = load(data).split(N_VALIDATION, N_TEST, rng=0)
    held, tuning = hold_out(test, np.random.default_rng(0)), each_item(validation)
    split = folder / f"{data}.json"
    parts = {"validation": written(tuning, 1 / tuning.sizes), "test": written(held, np.ones(len(held.items)))}
    split.write_text(json.dumps({"n_items": train.n_items, "train": train.to_lists(), **parts}), encoding="utf-8")
    own: dict[str, Any] = {
        "independent items": metrics.independent_items(train), "item-item cosine": metrics.item_item_cosine(train),
    }  # fmt: skip
    for name in OWN:
        for path in sorted(kernels.glob(f"{data}-{name.lower()}-*-0.safetensors")) if kernels else ():
            own[name] = ndpp.load(path)
    found = {name: held_out_ranks(model, held) for name, model in own.items()}
    found |= {} if own_in is None else read_ranks(own_in / f"{data}.npz")
    candidates, chosen = train.n_items - held.rest.sizes, []
    for record in (record for name in peers for record in run_peer(name, split, folder)):
        if "error" not in record:
            above, ties = np.array(record.pop("above")), np.array(record.pop("ties"))
            found[record["model"]] = Ranks(above, ties, candidates, np.ones(len(above), bool))
        chosen.append(record)
    if kept_in is not None:
        keep_ranks(kept_in / f"{data}.npz", held, found)
    return {"data": data, "n_held_out": len(held.items), "metrics": summary(found), "peers": chosen}


def kept(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the new record with the models of an older one that were not run again; the split and the held-out items are the same."""
    ran = {peer["model"] for peer in new["peers"]}
    peers = [peer for peer in old["peers"] if peer["model"] not in ran] + new["peers"]
    return new | {"metrics": old["metrics"] | new["metrics"], "peers": peers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", metavar="NAME")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument(
        "--kernels", type=Path, metavar="FOLDER", help="models that experiments/publish/quality.py --kernels saved"
    )
    parser.add_argument("--ranks", type=Path, metavar="FOLDER", help="write the ranks of each model there, as DATA.npz")
    parser.add_argument(
        "--own", type=Path, metavar="FOLDER", help="read the ranks of our own models there, which --ranks wrote"
    )
    parser.add_argument("--folder", type=Path, default=Path("build/peers"), help="splits and environments go there")
    parser.add_argument("-o", "--output", type=Path, default=Path("peers.json"))
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for data in chosen.data or DATA:
        peers = [name for name in chosen.peers if chosen.data or data in PEERS[name].data]
        record = compare(data, peers, chosen.folder, chosen.kernels, chosen.ranks, chosen.own)
        there = json.loads(chosen.output.read_text(encoding="utf-8"))["records"] if chosen.output.exists() else []
        for old in (one for one in there if one["data"] == data):
            record = kept(old, record)
        records = [one for one in there if one["data"] != data] + [record]
        with replacing(chosen.output) as temporary:
            temporary.write_text(
                json.dumps({"machine": machine(), "records": records}, indent=1) + "\n", encoding="utf-8"
            )
        for name, values in record["metrics"].items():
            print(data, name, *(f"{metric} {value[0]:.4g}" for metric, value in values.items()), flush=True)


if __name__ == "__main__":
    main()
