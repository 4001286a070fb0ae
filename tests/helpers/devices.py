"""Engines of the GPU on CPU tensors, and again on a CUDA device where there is one (marker ``gpu``)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[gpu]'")

on_devices = pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
        ),
    ],
)


def drawn_by(engine: Any, device: str, sampler: Any, max_samples: int | None = None) -> Any:
    """Return the sampler with an engine of this class on a device, CPU tensors included."""
    made = engine.prepare(sampler, torch.device(device))
    if made is not None and max_samples:
        made.max_samples = max_samples
    return dataclasses.replace(sampler, engine=made)
