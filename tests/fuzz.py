"""Try inputs nobody thought of: ``make fuzz``, or ``python tests/fuzz.py [kernels models folders baskets] --seconds 60``.

kernels  Random kernels with exact entries, badly scaled on purpose. Every public probability is compared with rational
         arithmetic: it must be right to 1e-8, or come with a :class:`PrecisionWarning`, or be refused.
models   Model files with bytes changed, cut off, repeated or inserted. Loading gives the same model or one of our errors.
folders  Folders of shards, treated alike.
baskets  Baskets with awkward labels, written and read again in every format; then files with bytes changed.

A case is a number: ``--only kernels 17`` repeats case 17. The exit status is 1 if any case failed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

import ndpp
from ndpp import rows
from ndpp.errors import NDPPError, PrecisionError, PrecisionWarning

TOLERANCE = 1e-8
IMPOSSIBLE = (
    ndpp.errors.ImpossibleSizeError,
    ndpp.errors.ZeroProbabilityError,
    ndpp.errors.NoConditionalKernelError,
)
"""What is refused as impossible may have a probability below the tolerance."""
MOST_NEEDLESS = 0.01
"""Largest share of harmless kernels that may be warned about."""
SLOW = 5.0
"""Seconds after which a case counts as hanging."""


class Failure(Exception):
    """What a case should not have done."""


def check(good: bool, problem: str) -> None:
    """Fail unless ``good``."""
    if not good:
        raise Failure(problem)


# -- kernels -----------------------------------------------------------------------------------------------------------------


class ExactKernel(NamedTuple):
    """A kernel whose entries are exact in double precision, and det L_S of every set S as a fraction."""

    X: Any
    W: Any
    dets: dict[tuple[int, ...], Fraction]
    harmless: bool

    @classmethod
    def random(cls, seed: int) -> ExactKernel:
        """Return a kernel of a few items; one in three has columns of one scale."""
        draw = random.Random(seed)
        n, d = draw.randint(1, 6), draw.randint(1, 5)
        harmless = draw.random() < 1 / 3
        X = [[Fraction(draw.randint(-9, 9)) for _ in range(d)] for _ in range(n)]
        if not harmless and n > 1 and draw.random() < 0.3:  # nearly or exactly dependent items
            X[-1] = [x * draw.choice([1, -1, 2]) for x in X[0]]
        G = [[draw.randint(-3, 3) for _ in range(draw.randint(1, d))] for _ in range(d)]
        m = min(map(len, G))
        S = [[draw.randint(-5, 5) for _ in range(d)] for _ in range(d)]
        tiny = Fraction(1, 2 ** draw.choice([10, 30, 50]))
        symmetric, skew = draw.choice([(1, 1), (1, 0), (0, 1), (1, tiny), (tiny, 1)]) if not harmless else (1, 1)
        W = [
            [symmetric * sum(G[i][k] * G[j][k] for k in range(m)) + skew * (S[i][j] - S[j][i]) for j in range(d)]
            for i in range(d)
        ]
        if not harmless:
            X, W = awkward(X, W, draw)
        L = product(product(X, W), transposed(X))
        sets = [s for k in range(n + 1) for s in combinations(range(n), k)]
        dets = {s: determinant([[L[i][j] for j in s] for i in s]) for s in sets}
        return cls(np.array(X, float), np.array(W, float), dets, harmless)

    def total(self, size: int | None = None, given: tuple[int, ...] = ()) -> Fraction:
        """Return the sum of det L_S over the sets of a size that contain the given items."""
        return sum(
            (p for s, p in self.dets.items() if set(given) <= set(s) and (size is None or len(s) == size)), Fraction(0)
        )


Matrix = list[list[Fraction]]


def product(A: Matrix, B: Matrix) -> Matrix:
    """Return A B."""
    return [[sum((a * b for a, b in zip(row, column)), Fraction(0)) for column in zip(*B)] for row in A]


def transposed(A: Matrix) -> Matrix:
    """Return Aᵀ."""
    return [list(column) for column in zip(*A)]


def awkward(X: Matrix, W: Matrix, draw: random.Random) -> tuple[Matrix, Matrix]:
    """Return a kernel with entries of very different magnitude, or one whose large terms cancel; all exact in double precision."""
    n, d, spread = len(X), len(W), draw.choice([8, 16, 27])

    def powers(count: int) -> list[Fraction]:
        return [Fraction(2) ** draw.randint(-spread, spread) for _ in range(count)]

    kind = draw.choice(["columns", "columns", "inner", "items", "terms", "twins"])
    if kind == "items":
        return [[x * s for x in row] for row, s in zip(X, powers(n))], W
    if kind == "twins" and n > 1:
        return [*X[:-1], [x + draw.randint(-1, 1) * Fraction(1, 2**spread) for x in X[0]]], W
    if kind == "terms":  # X A and A⁻¹ W A⁻ᵀ are the same kernel for every A
        whole = (X, W)
        for _ in range(2):
            i, j = draw.randrange(d), draw.randrange(d)
            size = Fraction(draw.choice([-1, 1]) * 2 ** draw.choice([3, 6, 9, 12]))
            if i != j:
                A = [[Fraction(a == b) + size * ((a, b) == (i, j)) for b in range(d)] for a in range(d)]
                inverse = [[Fraction(a == b) - size * ((a, b) == (i, j)) for b in range(d)] for a in range(d)]
                X, W = product(X, A), product(product(inverse, W), transposed(inverse))
        exact = all(Fraction(float(x)) == x for row in [*X, *W] for x in row)
        return (X, W) if exact else whole
    scale = powers(d)
    if kind == "inner":
        return X, [[s * w * t for w, t in zip(row, scale)] for row, s in zip(W, scale)]
    return [[x * s for x, s in zip(row, scale)] for row in X], W


def determinant(rows: list[list[Fraction]]) -> Fraction:
    """Return the determinant of a matrix of fractions."""
    matrix, value = [[Fraction(x) for x in row] for row in rows], Fraction(1)
    for i in range(len(matrix)):
        pivot = next((r for r in range(i, len(matrix)) if matrix[r][i]), None)
        if pivot is None:
            return Fraction(0)
        if pivot != i:
            matrix[i], matrix[pivot], value = matrix[pivot], matrix[i], -value
        value *= matrix[i][i]
        for r in range(i + 1, len(matrix)):
            factor = matrix[r][i] / matrix[i][i]
            matrix[r] = [a - factor * b for a, b in zip(matrix[r], matrix[i])]
    return value


def log_fraction(value: Fraction) -> float:
    """Return log value, −inf for zero; numerator and denominator may be beyond double precision."""
    if not value:
        return -math.inf
    n, d = value.numerator, value.denominator
    shift = n.bit_length() - d.bit_length()
    return math.log(Fraction(n, d << shift) if shift >= 0 else Fraction(n << -shift, d)) + shift * math.log(2)


def listed(found: Any) -> Any:
    """Return the values of an answer; none if it was refused."""
    return [] if found is None or isinstance(found, NDPPError) else found


class Tally:
    """Kernels with columns of one scale, and kernels that were warned about: the number, whether harmless, and for what."""

    harmless = 0
    warned: ClassVar[list[tuple[int, bool, list[str]]]] = []


def kernel_case(seed: int) -> None:
    """Compare every probability of one kernel with the exact ones."""
    exact = ExactKernel.random(seed)
    Z, n = exact.total(), len(exact.X)
    warned: list[str] = []

    def ask(name: str, function: Callable[[], Any]) -> Any:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                found = function()
            except PrecisionError:
                warned.append(name)
                return None
            except IMPOSSIBLE as reason:
                found = reason
        if any(issubclass(w.category, PrecisionWarning) for w in said):
            warned.append(name)
            return None
        return found

    def same_log(name: str, found: Any, wanted: Fraction, total: Fraction) -> None:
        if found is None:
            return
        if isinstance(found, NDPPError) or found == -math.inf:  # zero, as a probability
            check(wanted <= TOLERANCE * total, f"{name}: zero ({found}), should be exp({log_fraction(wanted):.17g})")
            return
        if not wanted:
            check(found <= math.log(TOLERANCE) + log_fraction(total), f"{name}: exp({found:.17g}), should be zero")
            return
        error = abs(math.expm1(found - log_fraction(wanted)))
        check(error <= TOLERANCE * max(1.0, abs(found)), f"{name}: relative error {error:.2g}")

    def same_values(name: str, found: Any, wanted: list[Fraction]) -> None:
        if found is None:
            return
        if isinstance(found, NDPPError):
            raise Failure(f"{name}: refused, though possible ({found})")
        full = np.zeros(len(wanted))
        full[: len(found)] = found
        error = max((abs(a - float(b)) for a, b in zip(full, wanted)), default=0.0)
        check(error <= TOLERANCE and not any(found[len(wanted) :]), f"{name}: error {error:.2g}")

    kernel = ask("the kernel", lambda: ndpp.LowRankKernel(exact.X, exact.W))
    if kernel is None:
        return
    for s, det in exact.dets.items():
        within = sum(p for t, p in exact.dets.items() if set(t) <= set(s))
        same_log(f"log_det({s})", ask("log_det", lambda s=s: kernel.log_det(s)), det, within)
        same_log(f"log_prob({s})", ask("log_prob", lambda s=s: kernel.log_prob(s)), det / Z, Fraction(1))
    same_log("log_normalizer()", ask("log_normalizer", kernel.log_normalizer), Z, Z)
    many = ndpp.Baskets.from_lists(list(exact.dets), n_items=n)
    for s, found in zip(exact.dets, listed(ask("log_probs", lambda: kernel.log_probs(many)))):
        same_log(f"log_probs of {s}", found, exact.dets[s] / Z, Fraction(1))
    same_values(
        "size_distribution()",
        ask("size_distribution", kernel.size_distribution),
        [exact.total(k) / Z for k in range(n + 1)],
    )
    chances = [exact.total(given=(a,)) / Z for a in range(n)]
    same_values("inclusion_probabilities()", ask("inclusion", kernel.inclusion_probabilities), chances)
    for k in range(1, n + 1):
        of_size = exact.total(k)
        same_log(f"log_normalizer({k})", ask("log e_k", lambda k=k: kernel.log_normalizer(k)), of_size, Z)
        if of_size:
            found = ask("inclusion of a size", lambda k=k: kernel.inclusion_probabilities(size=k))
            wanted = [
                sum((p for s, p in exact.dets.items() if len(s) == k and a in s), Fraction(0)) / of_size
                for a in range(n)
            ]
            if not (isinstance(found, NDPPError) and of_size <= TOLERANCE * Z):
                same_values(f"inclusion_probabilities(size={k})", found, wanted)
    condition_case(kernel, exact, ask, same_log, same_values, random.Random(seed))
    ask("sample", lambda: kernel.sample(2, rng=0))
    ask("Cholesky", lambda: ndpp.samplers.Cholesky.prepare(kernel).sample(2, rng=0))
    Tally.harmless += exact.harmless
    if warned:
        Tally.warned.append((seed, exact.harmless, sorted(set(warned))))


def condition_case(
    kernel: Any, exact: ExactKernel, ask: Any, same_log: Any, same_values: Any, draw: random.Random
) -> None:
    """Compare the conditional kernel, and the scores of the next item, given a random set."""
    n = len(exact.X)
    given = tuple(sorted(draw.sample(range(n), draw.randint(1, n))))
    if not exact.dets[given] or len(given) == n:
        return
    rest = ask("condition", lambda: kernel.condition(given))
    if isinstance(rest, NDPPError):
        within = sum(p for t, p in exact.dets.items() if set(t) <= set(given))
        check(exact.dets[given] <= TOLERANCE * within, f"condition({given}) is refused, though possible ({rest})")
    if rest is None or isinstance(rest, NDPPError):
        return
    total = exact.total(given=given)
    same_values(
        f"condition({given}).size_distribution()",
        ask("size", rest.size_distribution),
        [exact.total(k + len(given), given) / total for k in range(n - len(given) + 1)],
    )
    for s, det in exact.dets.items():
        if set(given) <= set(s):
            others = tuple(a for a in s if a not in given)
            found = ask("log_prob", lambda others=others: rest.log_prob(others))
            same_log(f"condition({given}).log_prob({others})", found, det / total, Fraction(1))
    scores = ask("scores", lambda: ndpp.next_item_scores(kernel, given))
    for a in set(range(n)) - set(given):
        if scores is not None and not isinstance(scores, NDPPError):
            wanted = exact.dets[tuple(sorted((*given, a)))] / exact.dets[given]
            error, best = abs(scores[a] - float(wanted)), float(max(scores))  # if all are zero, they are as odds
            check(
                error <= TOLERANCE * (max(best, float(wanted)) if best else 1),
                f"score of {a} given {given}: {error:.2g}",
            )


# -- bytes -------------------------------------------------------------------------------------------------------------------


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Return the content with something changed."""
    data = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 5])):
        at = draw.randrange(len(data) + 1) if draw.random() < 0.5 else draw.randrange(min(len(data), 600) + 1)
        kind = draw.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = draw.randrange(256)
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            data[at:at] = bytes(draw.randrange(256) for _ in range(draw.randint(1, 9)))
        elif kind == 4:
            del data[at : at + draw.randint(1, 40)]
        else:
            words = [
                b"null",
                b"-1",
                b"1e999",
                b"[" * 2000,
                b"99999999999999999999",
                b'"',
                b"\\u0000",
                b"F64",
                b"0",
                b"{}",
            ]
            data[at : at + draw.randint(0, 4)] = draw.choice(words)
    return bytes(data)


def same_kernel(first: Any, second: Any) -> bool:
    """Return whether two kernels and their labels are the same."""
    arrays = [np.asarray(k.X[:] if not hasattr(k.X, "read") else k.X.read()) for k in (first, second)]
    return np.array_equal(*arrays) and np.array_equal(first.W, second.W) and first.labels == second.labels


MODEL_ERRORS = (NDPPError, OSError)


def model_case(seed: int) -> None:
    """Load a model file that was changed: the same model or a clear error."""
    draw = random.Random(seed)
    kernel = small_model(draw)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors"
        ndpp.save(kernel, path, metadata={"seed": 3, "note": "tea"})
        about = ndpp.load_metadata(path)
        path.write_bytes(mutated(path.read_bytes(), draw))
        try:
            again = ndpp.load(path)
            metadata = ndpp.load_metadata(path)
        except MODEL_ERRORS:
            return
        check(same_kernel(kernel, again), f"another model was loaded: {again!r}, labels {again.labels}")
        check(metadata == about, f"other metadata were loaded: {metadata}")


def folder_case(seed: int) -> None:
    """Load a folder of shards in which one file was changed."""
    draw = random.Random(seed)
    kernel = small_model(draw)
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "X.npy", kernel.X)
        source = rows.as_rows(np.load(Path(folder) / "X.npy", mmap_mode="r"))
        sharded = ndpp.LowRankKernel(source if source is not None else kernel.X, kernel.W, labels=kernel.labels)
        path = Path(folder) / "m"
        ndpp.save(sharded, path)
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        changed = draw.choice(files)
        changed.write_bytes(mutated(changed.read_bytes(), draw))
        try:
            again = ndpp.load(path)
            same = same_kernel(kernel, again)
        except MODEL_ERRORS:
            return
        check(same, f"another model was loaded from {changed.name}")


def small_model(draw: random.Random) -> Any:
    """Return a small kernel with labels."""
    rng = np.random.default_rng(draw.randrange(1000))
    n = draw.randint(1, 5)
    labels = [f"tea {i}" for i in range(n)] if draw.random() < 0.8 else None
    return ndpp.LowRankKernel(rng.normal(size=(n, 2)), np.eye(2), labels=labels)


# -- baskets -----------------------------------------------------------------------------------------------------------------

AWKWARD = ["a", "tea", " ", "b ", " b", "\t", "\n", "\r", "\r\n", "\0", '"', "'", ",", ";", "|", "\ufeff", "é", "é", "茶", "☕", "0", "-1",
           "007", "nan", "NA", "null", "<b>", "\x1b[31m", "\u202e", "\x85", "\u2028", "#", "\\", "x" * 300]  # fmt: skip


def basket_case(seed: int) -> None:
    """Write baskets and read them again; then change the file and read that."""
    draw = random.Random(seed)
    labels = sorted({"".join(draw.choices(AWKWARD, k=draw.randint(1, 3))) for _ in range(draw.randint(1, 6))})
    sets = [draw.sample(labels, draw.randint(0, len(labels))) for _ in range(draw.randint(1, 6))]
    suffix = draw.choice([".txt", ".csv", ".tsv", ".txt.gz", ".csv.gz", ".parquet"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"b{suffix}"
        try:
            baskets = ndpp.Baskets.from_lists(sets, labels=labels)
            baskets.write(path)
        except NDPPError:
            return  # refused before anything was written
        finally:
            check(sorted(p.name for p in Path(folder).iterdir()) in ([], [path.name]), "something else was left behind")
        try:
            again = ndpp.Baskets.read(path, labels=labels, as_labels=True)
        except NDPPError as reason:
            raise Failure(f"written and then refused: {labels!r} {sets!r} {suffix}: {reason}") from None
        check(again == baskets, f"read back otherwise: {labels!r} {sets!r} {suffix}: {again.to_lists()}")
        path.write_bytes(mutated(path.read_bytes(), draw))
        try:
            ndpp.Baskets.read(path)
        except MODEL_ERRORS:
            return


CASES: dict[str, Callable[[int], None]] = {
    "kernels": kernel_case,
    "models": model_case,
    "folders": folder_case,
    "baskets": basket_case,
}


# -- running -----------------------------------------------------------------------------------------------------------------


class Result(NamedTuple):
    """A case that failed, and how."""

    kind: str
    seed: int
    problem: str


def run_case(kind: str, seed: int) -> Result | None:
    """Run one case; return what went wrong."""
    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            CASES[kind](seed)
    except Failure as failure:
        return Result(kind, seed, str(failure))
    except Exception as error:  # a foreign exception is what we look for
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Result(kind, seed, f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})")
    took = time.perf_counter() - began
    return Result(kind, seed, f"took {took:.1f} s") if took > SLOW else None


def run(kinds: list[str], *, first: int, seconds: float, count: int | None) -> tuple[int, list[Result]]:
    """Run cases of each kind, in turn, until the time is over or so many are done."""
    failures: list[Result] = []
    done = 0
    for kind in kinds:
        end = time.monotonic() + seconds / len(kinds)
        for seed in seeds(first, count):
            if time.monotonic() > end:
                break
            done += 1
            if (failure := run_case(kind, seed)) is not None:
                failures.append(failure)
                print(json.dumps(failure._asdict(), ensure_ascii=False), flush=True)
    return done, failures


def seeds(first: int, count: int | None) -> Iterator[int]:
    """Yield the numbers of the cases."""
    seed = first
    while count is None or seed < first + count:
        yield seed
        seed += 1


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}; all by default")
    parser.add_argument("--seconds", type=float, default=240.0, help="time for all kinds together")
    parser.add_argument("--count", type=int, help="most cases per kind")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", nargs=2, metavar=("KIND", "CASE"), help="repeat one case, with its traceback")
    chosen = parser.parse_args()
    if chosen.only:
        CASES[chosen.only[0]](int(chosen.only[1]))
        return 0
    done, failures = run(chosen.kinds, first=chosen.first, seconds=chosen.seconds, count=chosen.count)
    print(f"{done} cases, {len(failures)} failed")
    if Tally.warned or Tally.harmless:
        needless = [seed for seed, harmless, _ in Tally.warned if harmless]
        print(
            f"kernels: {len(Tally.warned)} warned about, {len(needless)} of them among {Tally.harmless} harmless ones: {needless}"
        )
        if len(needless) > MOST_NEEDLESS * Tally.harmless:
            return 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
