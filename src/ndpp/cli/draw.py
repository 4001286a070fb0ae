"""``ndpp sample`` and ``ndpp complete``: baskets drawn from a model."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
import typer

from ndpp.baskets import Baskets
from ndpp.cli import files
from ndpp.cli import options as o
from ndpp.cli.customers import Who
from ndpp.cli.deliver import BasketOutput, Starts, deliver
from ndpp.cli.journal import read_made_with
from ndpp.cli.lists import Lists
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit
from ndpp.samplers import Sampler
from ndpp.samplers.registry import EXACT, SAMPLERS, Request, SamplerSpec
from ndpp.samplers.shared import prepare_given

SPECS: dict[str, SamplerSpec] = {spec.name: spec for spec in SAMPLERS if spec.is_offered}
"""The samplers that serve every kernel, by name."""
WALKS: dict[str, SamplerSpec] = {name: spec for name, spec in SPECS.items() if spec.is_chain}
BLOCK = 2**16
"""Baskets planned at a time, which bounds the memory of the plan."""
TOGETHER = 64
"""Baskets whose given items are prepared together."""
Steps = Annotated[int | None, o.number("Steps of a walk; default: size².")]
WalkStart = Annotated[Literal["uniform", "greedy"], typer.Option(help="Where a walk starts.")]
FIRST = "Number of the first basket; basket i depends only on the seed and i."


def sampler_option(help: str, specs: dict[str, SamplerSpec]) -> Any:
    """Declare an option that takes the name of one of these samplers, with shell completion."""

    def complete(incomplete: str) -> list[tuple[str, str]]:
        return [(name, spec.summary) for name, spec in specs.items() if name.startswith(incomplete)]

    def check(name: str) -> str:
        files.require(name in specs, f"{name!r} is not one of {', '.join(specs)}")
        return name

    return typer.Option(metavar="NAME", help=f"{help}: {', '.join(specs)}.", autocompletion=complete, callback=check)


def prepare(name: str, law: Law, request: Request, limits: Sequence[Limit] = ()) -> Sampler:
    """Return a prepared sampler of baskets that keep limits; a request that it cannot meet is a usage error."""
    spec, exact = SPECS[name], f"--sampler {EXACT.name}"
    # The samplers of the literature are defined for a single kernel.
    serves = law.as_kernel is not None or bool(spec.other_laws)
    files.require(serves, f"mixtures are drawn by {exact}; {name} needs a single kernel")
    files.require(spec.takes_given or not len(request.given), f"--given needs {exact}; {name} cannot condition")
    wrong = "of one size; give --size" if request.size is None else "of any size; omit --size"
    files.require(spec.draws(request.size), f"{name} draws baskets {wrong}, or use {exact}")
    is_plain = request.steps is None and request.start == "uniform"
    files.require(spec.is_chain or is_plain, f"--steps and --start are for walks; {name} is not a walk")
    files.require(spec.on_gpu or request.device == "cpu", f"--device needs {exact}; others run on the CPU")
    if limits:
        files.require(spec is EXACT, f"--limit needs {exact}")
        ready: Sampler = law.sampler(size=request.size, given=request.given, device=request.device, limits=limits)
        return ready
    return spec.prepare(cast(LowRankKernel, law), request)


def sample(
    model: o.Model,
    *,
    number: Annotated[int, o.number("Number of baskets.", "--number", "-n")] = 1,
    size: o.Size = None,
    given: o.Given = None,
    conditions: o.ConditionOptions,
    who: Who,
    sampler: Annotated[str, sampler_option("Sampler", SPECS)] = EXACT.name,
    steps: Steps = None,
    start: WalkStart = "uniform",
    drawing: o.Drawing,
    first: Annotated[int, o.number(FIRST)] = 0,
    writing: o.Writing,
    encoding: o.Encoding = None,
    unknown: o.UnknownItems = o.Unknown.error,
    resume: o.Resume = False,
) -> None:
    """Draw baskets from a model, one per line on standard output or into a file.

    Baskets are written as they are drawn. With -o, FILE.ndpp-part holds them until FILE is complete; after Ctrl-C, a crash or a
    full disk, the same command with --resume continues and produces the same file.

    \b
    Examples:
      ndpp sample model.safetensors -n 20 --size 5 --seed 1
      ndpp sample model.safetensors -n 1000000 --jobs -1 -o baskets.parquet
      ndpp sample model.safetensors -n 5 --given bread,butter --exclude tea
      ndpp sample model.safetensors -n 5 --at store=3 --at weekday=Sunday
      ndpp sample model.safetensors -n 5 --candidates-file stock.txt --unknown skip
      ndpp sample model.safetensors --limit 'dairy=1..2' --limit 'price<=20' --table products.csv
      ndpp sample model.safetensors -n 5 --boost factors.csv --customers shop.customers --customer 17
      ndpp sample model.safetensors -n 500 | ndpp evaluate model.safetensors -
    """
    whole = files.load_model(model)
    target = BasketOutput.checked(writing, whole.labels, model, *conditions.files, *who.files, resume=resume)
    lists = Lists(conditions, writing.ids, encoding, unknown)
    fixed = files.item_ids(whole, given, ids=writing.ids)
    heard = lists.heard(whole, whole.one_basket(fixed), who)
    allowed, _ = heard.shared()
    ready = prepare(sampler, allowed, Request(size, fixed, steps, start, drawing.device), heard.limits)
    engine = "cpu" if ready.engine is None else "cuda"  # each draws other baskets from the same seed
    seed = _seed(drawing.seed, writing.output, resume=resume)
    made_with = {
        "seed": seed, "first": first, "model_crc32": files.fingerprint(model), "sampler": sampler, "size": size,
        "given": fixed.tolist(), **lists.told(heard), "steps": steps, "start": start, "device": engine,
    }  # fmt: skip

    def draw(done: int) -> Iterator[Baskets]:
        for begin in range(done, number, BLOCK):
            count = min(BLOCK, number - begin)
            yield from (
                part.baskets for part in ready.stream(count, rng=seed, n_jobs=drawing.jobs, first=first + begin)
            )

    deliver(draw, number, target, made_with=made_with, resume=resume)


def complete(
    model: o.Model,
    baskets: o.MaybeBaskets = None,
    *,
    given: o.Given = None,
    number: Annotated[int, o.number("Number of completions per basket.", "--number", "-n", least=1)] = 1,
    size: o.Size = None,
    add: Annotated[int | None, o.number("Items to add to each basket, instead of --size.")] = None,
    conditions: o.ConditionOptions,
    who: Who,
    drawing: o.Drawing,
    writing: o.Writing,
    reading: o.ReadingFor,
    resume: o.Resume = False,
) -> None:
    """Complete baskets: draw the remaining items exactly, given those that are in them.

    \b
    Examples:
      ndpp complete model.safetensors --given bread,butter --size 6 -n 3
      ndpp complete model.safetensors half.csv --add 2 -o full.csv
      ndpp complete model.safetensors half.csv --limit 'price<=20' --table products.csv
      cat half.txt | ndpp complete model.safetensors - --add 1
    """
    whole = files.load_model(model)
    files.require(size is None or add is None, "use either --size, for the whole basket, or --add, for the new items")
    target = BasketOutput.checked(writing, whole.labels, model, baskets, *conditions.files, *who.files, resume=resume)
    starts = files.given_baskets(whole, given, baskets, reading, ids=writing.ids)
    target = target._replace(starts=Starts(starts, number, from_file=baskets is not None))
    lists = Lists(conditions, writing.ids, reading.encoding, reading.unknown)
    heard = lists.heard(whole, starts, who)
    allowed, apart = heard.shared()
    sizes = [size if add is None else n_given + add for n_given in starts.sizes.tolist()]
    if baskets is not None:
        files.check_sizes(allowed, starts, sizes)
    seed = _seed(drawing.seed, writing.output, resume=resume)
    made_with: dict[str, Any] = {
        "seed": seed, "model_crc32": files.fingerprint(model), "number": number, "size": size, "add": add, "device": drawing.device,
        **lists.told(heard), "given": [items.tolist() for items in starts],
    }  # fmt: skip

    def draw(done: int) -> Iterator[Baskets]:
        for i in range(done // number, len(starts)):
            if i % TOGETHER == 0:
                prepare_given(allowed, starts[i : i + TOGETHER], allowed._memory)
            begin, own = max(done, i * number), starts[i]
            others = np.setdiff1d(apart, own)
            ready = allowed.sampler(
                size=sizes[i], given=own, exclude=others, device=drawing.device, limits=heard.limits
            )
            drawn = ready.stream((i + 1) * number - begin, rng=seed, n_jobs=drawing.jobs, first=begin)
            yield from (part.baskets for part in drawn)

    deliver(draw, number * len(starts), target, made_with=made_with, resume=resume)


def _seed(seed: int | None, output: Path | None, *, resume: bool) -> int:
    """Return the seed that was given, that of the run to continue, or a fresh one."""
    if seed is not None:
        return seed
    old = read_made_with(output) if resume and output is not None and files.is_regular(output) else None
    return secrets.randbelow(2**32) if old is None else int(old["seed"])
