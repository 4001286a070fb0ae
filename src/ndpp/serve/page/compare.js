// Two baskets side by side: that of the page, and another one in the hash of the address.

import { $, ask, bar, fill, make, quiet, searchBox } from "./elements.js";
import { chip, go, link, missionName, model, product, remove, state } from "./basket.js";
import { average, often, share, shown } from "./words.js";

const swapOther = (list, words) => go(state.basket, link("compare", list), words);

export function showCompare() {
  const [a, b] = [state.basket, state.named];
  $("first").replaceChildren(...a.map((item) => chip(item, () => remove(item))));
  $("other").replaceChildren(...b.map((item) => chip(item, () => swapOther(b.filter((one) => one !== item), `${shown(item)} removed from the other basket`))));
  const both = (path, body = {}) => Promise.all([a, b].map((basket) => ask(path, { basket, ...body })));
  const cell = (p, letter, text = share(p)) => make("td", {}, make("span", { class: "figure" }, text), p === null ? null : bar(p, { tone: letter }));
  const line = (head, cells) => make("tr", {}, make("th", { scope: "row" }, head), ...cells);
  const table = (name, body) => make("table", { class: "compared" }, make("caption", { class: "unseen" }, name),
    make("thead", {}, make("tr", {}, make("td", {}), ...["A", "B"].map((letter) => make("th", { scope: "col" },
      make("span", { class: letter === "A" ? "letter" : "letter other" }, letter))))), make("tbody", {}, ...body));
  fill("compare-facts", async () => [await both("probability"), await model()], ([found, { missions }]) => {
    const names = missions.map(({ name }) => name).filter((name) => found.some((one) => one.missions.some((m) => m.name === name)));
    const chance = (one, name) => one.missions.find((m) => m.name === name)?.probability ?? 0;
    names.sort((x, y) => Math.max(...found.map((one) => chance(one, y))) - Math.max(...found.map((one) => chance(one, x))));
    const plain = (text) => cell(null, "", text);
    return table("The two baskets in numbers", [
      line("Items so far", found.map((one) => plain(String(one.size)))),
      line("Items in the end, on average", found.map((one) => plain(one.contained_size === null ? "–" : average(one.contained_size)))),
      line("Baskets that hold them all", found.map((one) => plain(share(one.contained)))),
      line("Compared with chance", found.map((one) => plain(one.size < 2 ? "–" : often(one.contained_lift).replace(/ (as|than)$/, "")))),
      ...names.slice(0, 6).map((name) => line(make("span", {}, ...missionName(missions, name)),
        found.map((one, i) => cell(chance(one, name), "ab"[i], chance(one, name) ? share(chance(one, name)) : "under 1 %"))))]);
  });
  fill("compare-next", async () => {
    const best = await both("recommend", { n: 8 });
    const union = [...new Set(best.flatMap((one) => one.items.map(({ item }) => item)))];
    return union.length ? both("recommend", { n: union.length, candidates: union, staples: true }) : [{ items: [] }, { items: [] }];
  }, (found) => {
    const chance = (i, item) => found[i].items.find((r) => r.item === item)?.score ?? (([a, b][i].includes(item)) ? null : 0);
    const union = [...new Set(found.flatMap((one) => one.items.map(({ item }) => item)))];
    const most = (item) => Math.max(chance(0, item) ?? 0, chance(1, item) ?? 0);
    const cells = (item) => [0, 1].map((i) => cell(chance(i, item), "ab"[i], chance(i, item) === null ? "in it" : share(chance(i, item))));
    return [quiet("In how many baskets that begin like A, or like B, an item is in the end."),
      table("What usually comes next", union.sort((x, y) => most(y) - most(x)).map((item) => line(product(item), cells(item))))];
  });
}

$("other-place").append(searchBox("search-other", "Add an item to B", { held: () => state.named,
  add: (item) => swapOther([...state.named, item], `${shown(item)} added to the other basket`),
  back: () => state.named.length && swapOther(state.named.slice(0, -1), "The last item was removed from the other basket") }));
$("compare").addEventListener("click", () => {
  go(state.basket, link("compare", state.basket), "The other basket begins as a copy of yours");
  $("compare-title").focus({ preventScroll: true });
  scrollTo({ top: 0 });
});
$("swap").addEventListener("click", () => go(state.named, link("compare", state.basket), "The baskets have changed places"));
