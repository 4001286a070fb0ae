"""What the paper claims, one by one, and what becomes of each claim here.

A claim that experiments test has a key; findings carry it (``Finding.claim``), and the report says whether all of them hold. The others
are settled by proofs and by the tests of this library, or cannot be tested here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

HOLDS, FAILS, UNTESTABLE = "holds", "**does not hold**", "cannot be tested here"
NOT_RUN = "not measured in this folder"


class Claim(StrEnum):
    """The claims that experiments test."""

    BOUND = "bound"
    NO_N = "no n"
    NO_D = "no d"
    K_SQUARED = "k squared"
    PREPARATION = "preparation"
    FLAT = "flat"
    SUPERLINEAR = "superlinear"
    FAT_LEAVES = "fat leaves"
    NAIVE = "naive"
    FEW = "few"
    INFEASIBLE = "infeasible"
    MINUTES = "minutes"
    LINEAR_MIXING = "linear mixing"
    GREEDY = "greedy"


class Stated(NamedTuple):
    """A claim, where the paper makes it, the key of the findings that test it, or else a verdict with its reason."""

    where: str
    text: str
    key: Claim | None = None
    verdict: str = ""
    why: str = ""


NOT_PUBLIC = "the paper's learned kernels are not public; tables 2 and 3 are of ours"
OTHERWISE = "of kernels by our recipe; by the paper's, that of Instacart needs only thousands of proposals"
LARGE_N = "bounds for large n, d and k without constants; table 1 has measured exponents"
CLAIMS = (
    Stated("Theorem 1", "no minor of X W^A Xᵀ exceeds that of X Ŵ^A Xᵀ", None, HOLDS, "proof, with a gap that closes, and enumeration"),
    Stated("Theorem 1", "equality for sets of d items or more", None, FAILS, "not for every W; for W = Diag(I, D − Dᵀ) it holds"),
    Stated("Theorem 2, Propositions 5 and 6, Table 1", "costs of preparation, 2-DPP and walk", None, UNTESTABLE, LARGE_N),
    Stated("Theorem 4", "the expected number of proposals is at most (1 + σ_max(X)²κ_A)²", Claim.BOUND),
    Stated("after Theorem 4", "the number of rejections does not depend on n", Claim.NO_N),
    Stated("after Theorem 4", "the number of rejections does not depend on d", Claim.NO_D),
    Stated("Section 2.2", "O(k² log(1/(ε Pr(S_0)))) steps suffice", None, UNTESTABLE, "the constant is not given; see k² steps"),
    Stated("Figure 1, Section 6.1", "k² steps suffice for random kernels: distances fall as those of exact samples", Claim.K_SQUARED),
    Stated("Section 6.1", "k² steps suffice in general", None, FAILS, "not for every kernel: tight pairs need more (*Beyond the paper*)"),
    Stated("Figure 2, Section 6.2", "preparation takes time linear in n", Claim.PREPARATION),
    Stated("Figure 2, Section 6.2", "a sample takes almost the same time at n = 10² and at 10⁶", Claim.FLAT),
    Stated("Figure 2, Section 6.2", "a sample takes time superlinear in k", Claim.SUPERLINEAR),
    Stated("Section 6.3", "the naive walk is over 1,000 times slower at n = 1,000", Claim.NAIVE),
    Stated("Section 4, Table 2", "rejections per step are very few compared to n", Claim.FEW),
    Stated("Table 2", "at k = 50, exact sampling by rejection is infeasible on all data sets", Claim.INFEASIBLE, why=OTHERWISE),
    Stated("Table 2", "at k = 50, the walk ends within a few minutes", Claim.MINUTES),
    Stated("Table 2", "which sampler is fastest where; the walk is up to 13 times faster than Cholesky", None, UNTESTABLE, NOT_PUBLIC),
    Stated("Table 3", "on ONDPPs rejection is faster for k = 10 and any size; over 92 days for k = 50", None, UNTESTABLE, NOT_PUBLIC),
    Stated("Appendix A.1", "leaves of B = 8 items cost a marginal overhead", Claim.FAT_LEAVES),
    Stated("Appendix A.1", "and reduce memory by a factor of 8", None, HOLDS, "a tree of n/8 leaves has an eighth of the nodes"),
    Stated("Appendix A.5", "mixing times by PSRF are linear in k, for every n", Claim.LINEAR_MIXING),
    Stated("Appendix B", "a greedy start mixes faster", Claim.GREEDY),
)  # fmt: skip


def verdicts(records: Iterable[Mapping[str, Any]]) -> list[Sequence[str]]:
    """Return the lines of a table: where, claim, verdict, and what it rests on; ``records`` of quick runs do not count."""
    tested: dict[str, dict[str, list[bool]]] = {}
    for record in (one for one in records if not one["quick"]):
        for finding in record["findings"]:
            if finding.get("claim") and finding["holds"] is not None:
                tested.setdefault(finding["claim"], {}).setdefault(record["title"], []).append(finding["holds"])
    return [_line(stated, tested.get(stated.key or "", {})) for stated in CLAIMS]


def _line(stated: Stated, tested: Mapping[str, Sequence[bool]]) -> Sequence[str]:
    verdict, why = stated.verdict, stated.why
    if stated.key is not None:
        held = [holds for own in tested.values() for holds in own]
        verdict = (HOLDS if all(held) else FAILS) if held else NOT_RUN
        counts = (f"{title.split(':')[0]}, {sum(own)} of {len(own)}" for title, own in tested.items())
        why = "; ".join(filter(None, [*counts, why]))
    return [stated.where, stated.text, verdict, why]
