// What has changed since an earlier version of the model: missions, items, and those that came and went.

import { $, ask, bar, bold, fill, make, named, quiet } from "./elements.js";
import { missionName, model, product, tone } from "./basket.js";
import { often, share } from "./words.js";

const SHOWN = matchMedia("(max-width: 40rem)").matches ? 4 : 6, FIRST_WAIT = 1_000, LAST_WAIT = 60_000;

// The service computes it once, after it has loaded the model.
async function known(wait = FIRST_WAIT) {
  try {
    return await ask("changes");
  } catch (problem) {
    if (problem.type !== "urn:ndpp:problem:not-ready" || wait > LAST_WAIT) throw problem;
    await new Promise((done) => { setTimeout(done, wait); });
    return known(2 * wait);
  }
}

function part(title, list, head, words) {
  const moved = list.filter(({ before, now }) => before !== now).slice(0, SHOWN), top = Math.max(...moved.flatMap(({ before, now }) => [before, now]));
  const row = (one) => make("li", { class: "row" }, make("div", {}, head(one), make("p", { class: "quiet" }, ...words(one)),
    bar(one.now / top, { usual: one.before / top, tone: one.tone })));
  return moved.length ? make("div", {}, make("h3", {}, title), make("ul", { class: "rows" }, ...moved.map(row))) : null;
}

function listed(title, list, total, name) {
  const more = total > list.length ? make("li", { class: "quiet" }, `and ${(total - list.length).toLocaleString("en")} more`) : null;
  return list.length ? make("div", {}, make("h3", {}, title), make("ul", { class: "chips" }, ...list.map((one) => make("li", { class: "chip" }, ...name(one))), more)) : null;
}

// Drawn once: it depends neither on the basket nor on the context.
export function showChanges() {
  if (!$("changes") || $("changes").childElementCount) return;
  fill("changes", async () => [await known(), await model()], ([found, { missions }]) => {
    const coloured = found.missions.map((one) => ({ ...one, tone: tone(missions, one.name) }));
    const came = [
      listed("New items", found.entered, found.n_entered, ({ item, probability }) => [product(item), make("span", { class: "quiet" }, share(probability))]),
      listed("Items that are gone", found.left, found.n_left, ({ item }) => [named(item)])].filter((one) => one !== null);
    const moved = [
      part("Missions that changed most", coloured, ({ name }) => bold(...missionName(missions, name)), ({ before, now }) => [bold(share(now)), ` of all baskets, ${share(before)} before`]),
      part("Items that changed most", found.items, ({ item }) => product(item), ({ before, now }) => ["in ", bold(share(now)), ` of all baskets, ${often(now / before)} before`])].filter((one) => one !== null);
    if (!moved.length && !came.length) return quiet("Nothing has changed.");
    return make("div", { class: "pair" }, ...moved, ...(moved.length > 1 ? came : [make("div", {}, ...came)]));
  });
}
