"""``ndpp sample`` and ``ndpp complete``: baskets drawn from a model."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ndpp.baskets import Baskets
from ndpp.cli import options as o
from ndpp.cli.deliver import Target, deliver
from ndpp.cli.files import (
    Source,
    check_totals,
    excluding,
    fingerprint,
    given_baskets,
    is_plain,
    item_ids,
    load_model,
    need,
)
from ndpp.cli.journal import read_made_with
from ndpp.cli.samplers import SPECS, Start, engine_of, names_option, prepare
from ndpp.samplers.registry import EXACT, Request

BLOCK = 2**16
"""Baskets that are planned at a time: however many are asked for, the plan takes little memory."""
Number = Annotated[int, typer.Option("--number", "-n", metavar="N", min=0, help="How many baskets.")]


def sample(
    model: o.Model,
    number: Number = 1,
    size: o.Size = None,
    given: o.Given = None,
    exclude: o.Exclude = None,
    sampler: Annotated[str, names_option(SPECS, help="How to draw")] = EXACT.name,
    steps: Annotated[int | None, typer.Option(metavar="N", min=0, help="Steps of a walk; size² if left out.")] = None,
    start: Annotated[Start, typer.Option(help="Where a walk begins.")] = Start.uniform,
    seed: o.FreshSeed = None,
    first: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Number of the first basket: basket i depends on the seed and i alone."),
    ] = 0,
    jobs: o.Jobs = 1,
    device: o.Device = "cpu",
    output: o.Output = None,
    to: o.To = None,
    json: o.Json = False,
    ids: o.Ids = False,
    resume: o.Resume = False,
) -> None:
    """Draw baskets from a model: one a line on standard output, or into a file.

    Baskets are written as they are drawn. With -o they are kept in FILE.ndpp-part until FILE is whole; after Ctrl-C, a crash
    or a full disk, the same command with --resume goes on to the very same file.

    \b
    Examples:
      ndpp sample model.safetensors -n 20 --size 5 --seed 1
      ndpp sample model.safetensors -n 1000000 --jobs -1 -o baskets.parquet
      ndpp sample model.safetensors -n 5 --given bread,butter --exclude tea
      ndpp sample model.safetensors -n 500 | ndpp evaluate model.safetensors -
    """
    kernel = load_model(model)
    target = Target(output, to, json, None if ids else kernel.labels)
    target.check(model, resume=resume)
    fixed = item_ids(kernel, given, ids=ids)
    allowed, never = excluding(kernel, exclude, fixed, ids=ids)
    ready = prepare(sampler, allowed, Request(size, fixed, steps, start.value, device))
    seed = _seed(seed, output, resume=resume)
    made_with = {
        "seed": seed, "first": first, "model_crc32": fingerprint(model), "sampler": sampler, "size": size,
        "given": fixed.tolist(), "exclude": never.tolist(), "steps": steps, "start": start.value, "device": engine_of(ready),
    }  # fmt: skip

    def draw(done: int) -> Iterator[Baskets]:
        for begin in range(done, number, BLOCK):
            count = min(BLOCK, number - begin)
            yield from (part.baskets for part in ready.stream(count, rng=seed, n_jobs=jobs, first=first + begin))

    deliver(draw, number, target, made_with=made_with, resume=resume)


def complete(
    model: o.Model,
    baskets: o.MaybeBaskets = None,
    given: o.Given = None,
    number: Annotated[
        int, typer.Option("--number", "-n", metavar="N", min=1, help="How many completions of each basket.")
    ] = 1,
    size: o.Size = None,
    add: Annotated[
        int | None, typer.Option("--add", metavar="N", min=0, help="Items to add to each basket, in place of --size.")
    ] = None,
    exclude: o.Exclude = None,
    seed: o.FreshSeed = None,
    jobs: o.Jobs = 1,
    device: o.Device = "cpu",
    output: o.Output = None,
    to: o.To = None,
    json: o.Json = False,
    ids: o.Ids = False,
    from_: o.From = None,
    basket: o.BasketColumn = "basket",
    item: o.ItemColumn = "item",
    resume: o.Resume = False,
) -> None:
    """Complete baskets: draw the rest, exactly, given what is in them.

    \b
    Examples:
      ndpp complete model.safetensors --given bread,butter --size 6 -n 3
      ndpp complete model.safetensors --given 3,17 --size 8
      ndpp complete model.safetensors half.csv --add 2 -o full.csv
      cat half.txt | ndpp complete model.safetensors - --add 1
    """
    kernel = load_model(model)
    need(size is None or add is None, "--size and --add exclude each other: the whole basket, or what is added to it")
    target = Target(output, to, json, None if ids else kernel.labels)
    target.check(model, baskets, resume=resume)
    starts = given_baskets(kernel, given, Source.maybe(baskets, from_, basket, item), ids=ids)
    allowed, never = excluding(kernel, exclude, starts.indices, ids=ids)
    totals = _totals(starts, size, add)
    if baskets is not None:
        check_totals(allowed, starts, totals)
    seed = _seed(seed, output, resume=resume)
    made_with: dict[str, Any] = {
        "seed": seed, "model_crc32": fingerprint(model), "number": number, "size": size, "add": add, "device": device,
        "exclude": never.tolist(), "given": [items.tolist() for items in starts],
    }  # fmt: skip

    def draw(done: int) -> Iterator[Baskets]:
        for i in range(done // number, len(starts)):
            begin = max(done, i * number)
            ready = allowed.sampler(size=totals[i], given=starts[i], device=device)
            yield from (
                part.baskets for part in ready.stream((i + 1) * number - begin, rng=seed, n_jobs=jobs, first=begin)
            )

    deliver(draw, number * len(starts), target, made_with=made_with, resume=resume)


def _totals(starts: Baskets, size: int | None, add: int | None) -> list[int | None]:
    """Return how many items each basket is to have."""
    return [size if add is None else given + add for given in starts.sizes.tolist()]


def _seed(seed: int | None, output: Path | None, *, resume: bool) -> int:
    """Return the seed: as told, that of the run that is continued, or a fresh one."""
    if seed is not None:
        return seed
    old = read_made_with(output) if resume and output is not None and is_plain(output) else None
    return secrets.randbelow(2**32) if old is None else int(old["seed"])
