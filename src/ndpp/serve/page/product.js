// The page of one product: how often it is bought, with what, instead of what, and on which missions.

import { $, ask, bar, bold, fill, make, named, picture, quiet, sizeChart } from "./elements.js";
import { fact, inSuch, likelihood, missionName, model, query, row, rows, shared, state, toggle, tone } from "./basket.js";
import { isChosen } from "./context.js";
import { average, median, often, share, shareOf } from "./words.js";

const FIRST_WAIT = 4_000, LAST_WAIT = 120_000;
let shownItem = null;

const isClear = ({ by_ties: ties }) => ties < 0.9;

// The sizes of hundreds of missions take the service some minutes; until they are known, it is asked again, less and less often.
function showSizes(item, wait = FIRST_WAIT) {
  fill("product-sizes", async () => [await ask(`sizes?${query([item])}`), await model()], ([{ size_distribution: own }, { size_distribution: all }]) => {
    if (own === null || all === null) {
      if (wait <= LAST_WAIT) setTimeout(() => { if (shownItem === item) showSizes(item, 2 * wait); }, wait);
      return quiet("How large the baskets with it are is not known yet.");
    }
    return sizeChart(own, { usual: all, caption: `Items in the baskets with it: half of them hold ${median(own)} or fewer. The line shows all baskets: ${median(all)} or fewer.` });
  });
}

export function showProduct(afresh = false) {
  const [item] = state.named, held = state.basket.includes(item);
  $("product-add").textContent = held ? "Remove from the basket" : "Add to the basket";
  $("product-add").onclick = () => toggle(item);
  if (shownItem === item && !afresh) return;
  shownItem = item;
  $("product-title").replaceChildren(picture(item, true), named(item));
  for (const place of ["product-facts", "product-sizes", "product-with", "product-instead", "product-missions"]) $(place).replaceChildren();
  const likely = likelihood([item]), related = shared(() => ask(`related?${query([item])}&n=8`));
  fill("product-facts", async () => [await likely(), await model()], ([answer, m]) => {
    const [part, rest] = shareOf(answer.contained, isChosen() ? "such baskets" : "all baskets");
    return make("ul", { class: "figures across" }, fact(part, rest), answer.contained_size === null ? null
      : fact(`${average(answer.contained_size)} items`, `in the baskets that hold it, on average; ${average(m.mean_size)} in all`));
  });
  showSizes(item);
  fill("product-with", related, ({ probability, complements }) => (complements.length
    ? [quiet("How many baskets with it hold these, too; strongest first."), rows(complements.map((r) => row(r.other,
      [...inSuch(r.together / probability, "baskets with it"), `, ${often(r.lift)} usual`], r.together / probability)))]
    : quiet("Nothing goes with it more often than by chance.")));
  fill("product-instead", related, ({ substitutes }) => (substitutes.some(isClear)
    ? [quiet("What is seldom bought along with it, compared with what missions and popularity suggest."),
      rows(substitutes.filter(isClear).map((r) => row(r.other, ["together ", bold(`${often(r.by_ties)} expected`)], 1 - r.by_ties, null, "less")))]
    : quiet("Nothing clearly stands in for it.")));
  fill("product-missions", async () => [await likely(), await model()], ([answer, { missions }]) => {
    $("product-missions-card").hidden = answer.missions.length === 0;
    return make("ul", { class: "cards" }, ...answer.missions.slice(0, 4).map(({ name, probability }) => {
      const one = missions.find((mission) => mission.name === name);
      return make("li", { class: "card mission" }, make("h3", {}, ...missionName(missions, name)),
        bar(probability, { usual: one.share, tone: tone(missions, name) }),
        make("p", { class: "quiet" }, bold(share(probability)), ` of the baskets with it; ${share(one.share)} of all. ${average(one.mean_size)} items each.`));
    }));
  });
  if (afresh) return;
  $("product-title").focus({ preventScroll: true });
  scrollTo({ top: 0 });
}

export const leaveProduct = () => { shownItem = null; };
