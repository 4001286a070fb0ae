"""Checkpoints: the complete state of training in a safetensors file, replaced atomically."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ndpp._atomic import disk_errors, replacing
from ndpp.baskets import Baskets
from ndpp.errors import ModelFileError

FORMAT = "ndpp-training"
FORMAT_VERSION = 3
"""Since version 2 a checkpoint names the candidate, or the candidates, that it is of. Since version 3 it has the families of a mixture, and
there is one from the beginning, when it has no candidates yet."""


class Checkpoint(NamedTuple):
    """Tensors by name, and the rest of the state as JSON."""

    tensors: dict[str, Tensor]
    record: dict[str, Any]
    path: str = ""

    def named(self, group: str, names: Sequence[str]) -> list[Tensor]:
        """Return the tensors of a group by their names."""
        if missing := [name for name in names if f"{group}.{name}" not in self.tensors]:
            raise self.unusable(f"it has no {group}.{missing[0]}")
        return [self.tensors[f"{group}.{name}"] for name in names]

    def candidates(self) -> dict[str, Checkpoint]:
        """Return the checkpoint of each candidate that it names."""
        if "candidate" in self.record:
            return {self.record["candidate"]: self}
        found = {}
        for name, record in self.record.get("candidates", {}).items():
            own = {key: tensor for key, tensor in self.tensors.items() if key.startswith(f"{name}.")}
            tensors = {key.removeprefix(f"{name}."): tensor for key, tensor in own.items()}
            found[name] = self._replace(tensors=tensors, record=record)
        return found

    def unusable(self, reason: str) -> ModelFileError:
        """Return the error for a checkpoint of a model that is trained in another way today."""
        return ModelFileError(
            f"{self.path!r} is a checkpoint of another version of ndpp, or of another machine: {reason}",
            advice="Delete it and train again.",
        )


FRESH = Checkpoint({}, {"history": []})
"""That of a run that has not begun."""


def write(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically: a killed process leaves either the old file or the new one."""
    header = {"format": FORMAT, "format_version": str(FORMAT_VERSION), "record": json.dumps(dict(record))}
    with replacing(path) as temporary, disk_errors(path):
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, temporary, header)


def read(path: str | os.PathLike[str]) -> Checkpoint:
    """Return what :func:`write` wrote."""
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"no checkpoint at {str(path)!r}; fit with checkpoint= writes one, and renews it after every epoch"
        )
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT or int(header.get("format_version", 0)) > FORMAT_VERSION:
                raise ModelFileError(
                    f"{str(path)!r} is not a training checkpoint that this version of ndpp can read; "
                    "use ndpp.load for a kernel written by ndpp.save"
                )
            # Copies, since safetensors maps the file, and Windows cannot replace a mapped file.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            return Checkpoint(tensors, json.loads(header["record"]), os.fspath(path))
    except (SafetensorError, KeyError, ValueError) as reason:
        if isinstance(reason, ModelFileError):
            raise
        raise ModelFileError(
            f"{str(path)!r} is not a checkpoint, or is damaged: {reason}", advice="Delete it and train again."
        ) from None


def fingerprint(baskets: Baskets) -> int:
    """Return a checksum of the baskets, and of their weights if they have any."""
    weights = baskets.weights
    begin = baskets.n_items if weights is None else zlib.crc32(weights.tobytes(), baskets.n_items)
    return zlib.crc32(baskets.indices.tobytes(), zlib.crc32(baskets.indptr.tobytes(), begin))
