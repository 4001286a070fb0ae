"""Scores and bounds of mixtures: averages over the components, or products that components with shared ties have in common."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from ndpp._memory import Memory
from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.errors import ZeroProbabilityError
from ndpp.laws.begun import Begun, SharedTies, parts
from ndpp.laws.law import Law
from ndpp.laws.scoring import Best, Scoring, impossible, with_one_more
from ndpp.linalg.logs import log_row_sums


class MixtureScoring(Scoring):
    """Scores and bounds of a mixture of any components."""

    law: Law

    def next_scores_of(self, ids: IntArray) -> FloatArray:
        """Return Σ_c P(c | J) P_c(J ∪ a) / P_c(J)."""
        mixture: Law = self.law.with_empty()
        posterior = mixture.responsibilities(ids, whole=True)
        out, log_total = np.zeros(mixture.n_items), mixture.log_prob(ids)
        others = np.setdiff1d(np.arange(mixture.n_items), ids)
        for c, (component, weight, share) in enumerate(zip(mixture.components, mixture.weights, posterior)):
            with suppress(ZeroProbabilityError):
                if share > 0:
                    memory = self.memory.remember(("component", c), lambda: Memory(self.memory.budget))
                    out += share * component._scoring.keeping_in(memory).next_scores_of(ids)
                    continue
            if weight > 0:  # one that lacks the basket, up to rounding, may hold it with one more item
                more = with_one_more(ids, others, mixture.n_items)
                out[others] += weight * np.exp(component.log_probs(more) - log_total)
        return out

    def next_scores(self, baskets: Baskets) -> FloatArray:
        """Return the scores of baskets that all components can have, each component's of many at a time; NaN for others."""
        mixture: Law = self.law.with_empty()
        log_posterior = mixture._log_weights + mixture._log_whole(baskets)
        out, used = np.zeros((len(baskets), mixture.n_items)), mixture.weights > 0
        lacking = np.asarray(~(log_posterior[:, used] > -np.inf).all(axis=1))
        shares = np.exp(
            log_posterior - log_row_sums(log_posterior)[:, None],
            where=~lacking[:, None],
            out=np.zeros_like(log_posterior),
        )
        for c in np.flatnonzero(shares.any(axis=0)).tolist():
            memory = self.memory.remember(("component", c), lambda: Memory(self.memory.budget))
            which = np.flatnonzero(shares[:, c] > 0)
            scoring = mixture.components[c]._scoring.keeping_in(memory)
            out[which] += shares[which, c, None] * scoring.next_scores(baskets[which])
        out[lacking] = np.nan
        return out

    def item_bounds(self) -> FloatArray:
        """Return the bounds of the components; of one that is a mixture, the largest of its own."""
        return np.stack([part._scoring.item_bounds().max(axis=0) for part in self.law._plain_components])


class PooledScoring(MixtureScoring):
    """Scores of an average of laws, as a mixture of these; ``pooled`` is the law whose components are those of all of them."""

    def __init__(self, pooled: Law, memory: Memory | None = None) -> None:
        super().__init__(pooled.drawn_from, memory)
        self.pooled = pooled

    def keeping_in(self, memory: Memory) -> PooledScoring:
        """Return the same for a law that is part of another, whose memory this is."""
        return PooledScoring(self.pooled, memory)

    def begun_scores(self, baskets: Baskets, best: Best | None, weights: FloatArray | None) -> FloatArray:
        """Return Σ_m P(m | J ⊆ S) P_m(a ∈ S | J ⊆ S), with the full sums of all laws, whatever the best items are."""
        pooled, found, log_mass, first = self.pooled, [], [], 0
        for law in pooled.laws:  # type: ignore[attr-defined]
            own = slice(first, first + len(law.weights))
            free = (
                np.broadcast_to(pooled._free_weights[own], (len(baskets), len(law.weights)))
                if weights is None
                else weights[:, own]
            )
            started = np.stack([law._log_started(ids, None) for ids in baskets]).reshape(free.shape)
            with np.errstate(divide="ignore"):
                log_mass.append(log_row_sums(np.log(free) + started - law._log_unit))
            found.append(law._scoring.begun_scores(baskets, None, np.array(free)))
            first = own.stop
        shares = np.stack(log_mass, axis=1)
        with np.errstate(invalid="ignore"):
            shares = np.exp(shares - log_row_sums(shares)[:, None])
        return np.asarray(
            sum(share[:, None] * np.where(share[:, None] > 0, one, 0.0) for share, one in zip(shares.T, found))
        )


class SharedTiesScoring(Scoring):
    """Scores of mixtures with shared ties, many baskets at a time."""

    law: SharedTies

    def next_scores_of(self, ids: IntArray) -> FloatArray:
        """Return the scores of one basket."""
        out: FloatArray = self.next_scores(self.law.one_basket(ids))[0]
        if np.isnan(out[0]):
            raise impossible(ids)
        return out

    def next_scores(self, baskets: Baskets) -> FloatArray:
        """Return Σ_c P(c | J) o_ca · G(J ∪ a) / G(J), NaN for impossible baskets.

        G is that of the rows, and items of rows that the basket touches already do not change it.
        """
        mixture = self.law
        log_posterior = mixture._log_weights + mixture._log_whole(baskets)
        total = log_row_sums(log_posterior)[:, None]
        out, possible = np.full((len(baskets), mixture.n_items), np.nan), np.flatnonzero(total[:, 0] > -np.inf)
        posterior, rest = np.exp(log_posterior[possible] - total[possible]), baskets[possible]
        ties = self._ties(mixture.touched_rows(rest)[0])[:, mixture.base.support]
        found = posterior @ mixture.odds_alone * mixture.by_item(ties)
        at, items, scores = mixture.within_rows(rest, posterior, whole=True)
        found[at, items] = scores
        found[np.repeat(np.arange(len(rest)), rest.sizes), rest.indices] = 0.0
        out[possible] = found
        return out

    def _ties(self, rows: Baskets) -> FloatArray:
        """Return G(T ∪ b) / G(T) of each set T of rows and all rows b."""
        base = self.law.base._scoring.keeping_in(self.memory)
        out: FloatArray = base.next_scores(rows)
        for i in np.flatnonzero(np.isnan(out[:, 0])):
            out[i] = base.next_scores_of(rows[i])
        return out

    def begun_scores(self, baskets: Baskets, best: Best | None, weights: FloatArray | None) -> FloatArray:
        """Return P(a ∈ S | J ⊆ S), component by component and as few of them as the best items need (:mod:`ndpp.laws.begun`)."""
        out = np.empty((len(baskets), self.law.n_items))
        for part in parts(self.law, baskets):
            begun = Begun(self.law, baskets[part], None if weights is None else weights[part])
            wanted = None if best is None or best.wanted is None else [best.wanted[i] for i in part]
            out[part] = begun.scores() if best is None else begun.best(best._replace(wanted=wanted))
        return out


class TiedScoring(SharedTiesScoring):
    """Scores and bounds of mixtures with ties between items."""

    def item_bounds(self) -> FloatArray:
        """Return log odds plus the bounds of the ties."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.law.odds) + self.law.base._scoring.item_bounds())
