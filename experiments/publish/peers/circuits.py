"""Hidden Chow-Liu trees (HCLT) of PyJuice on the data of the experiment ``registries``: ``python circuits.py FILE.json [NAME …]``.

An HCLT [Liu and Van den Broeck, *Tractable regularization of probabilistic circuits*, NeurIPS 2021] is a tree of hidden variables, one per
item, whose edges are those of the Chow-Liu tree of the items. Two numbers of hidden states are tried. Parameters are learned by EM on
minibatches, with steps that become shorter when the validation sets gain no more; the best epoch counts. It needs ``pip install pyjuice``,
a GPU and the folder of data that ``NDPP_DATA`` names. Every record goes to the file when it is there; those that are there are not made
again.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyjuice
import torch

from ndpp.baskets import Baskets
from ndpp_experiments.registries import _splits

LATENTS, BATCH, EPOCHS, PATIENCE, STEP, PSEUDOCOUNT = (32, 128), 256, 200, 12, 0.3, 0.1


def dense(baskets: Baskets) -> torch.Tensor:
    """Return the baskets as rows of zeros and ones."""
    out = np.zeros((len(baskets), baskets.n_items), np.int64)
    out[np.repeat(np.arange(len(baskets)), baskets.sizes), baskets.indices] = 1
    return torch.tensor(out, device="cuda")


def mean(circuit: Any, sets: torch.Tensor) -> float:
    """Return the mean log-likelihood; the last batch is filled up, since circuits are compiled for one size."""
    values = []
    with torch.no_grad():
        for part in torch.split(sets, BATCH):
            filled = torch.cat([part, part[:1].expand(BATCH - len(part), -1)])
            values.append(circuit(filled).view(-1)[: len(part)].clone())
    return float(torch.cat(values).mean())


def learned(
    name: str, latents: int, train: torch.Tensor, validation: torch.Tensor, test: torch.Tensor
) -> dict[str, Any]:
    """Return the record of one tree."""
    torch.manual_seed(0)
    began = time.perf_counter()
    tree = pyjuice.structures.HCLT(
        train.float(), num_bins=2, sigma=0.1, num_latents=latents, chunk_size=32, input_node_params={"num_cats": 2}
    )
    circuit = pyjuice.TensorCircuit(tree).to("cuda")
    optimizer = pyjuice.optim.MiniBatchEM(circuit, step_size=STEP, pseudocount=PSEUDOCOUNT)
    best, found, stale, epoch = -np.inf, -np.inf, 0, 0
    while epoch < EPOCHS and stale < PATIENCE:
        order = torch.randperm(len(train), device="cuda")
        for part in torch.split(order, BATCH)[: len(train) // BATCH]:
            circuit(train[part]).mean().backward()
            optimizer.step()
        epoch, value = epoch + 1, mean(circuit, validation)
        stale = 0 if value > best + 1e-4 else stale + 1
        if not stale:
            best, found = value, mean(circuit, test)
        elif stale % 4 == 0:
            optimizer.step_size /= 2
    return {
        "name": name, "latents": latents, "epochs": epoch, "validation": best, "test": found,
        "seconds": time.perf_counter() - began,
    }  # fmt: skip


def main() -> None:
    path = Path(sys.argv[1])
    records = json.loads(path.read_text()) if path.exists() else []
    there = {(record["name"], record["latents"]) for record in records}
    for name, *parts in _splits(False, 0):
        for latents in LATENTS if name in (sys.argv[2:] or name) else ():
            if (name, latents) not in there:
                records.append(learned(name, latents, *map(dense, parts)))
                path.write_text(json.dumps(records, indent=1) + "\n")
                print(records[-1], flush=True)


if __name__ == "__main__":
    main()
