// The page: a basket, and what the model says about it; one product; two baskets side by side.

import { $, ask, bar, bold, briefly, drawing, fill, make, named, quiet, say, searchBox } from "./elements.js";
import { Atlas, buttons } from "./map.js";
import { average, items, often, share, shareOf, shown } from "./words.js";

const DRAWN = 4, LETTERS = 260, TYPICAL = 4, CARDS = matchMedia("(max-width: 40rem)").matches ? 4 : 8;
const state = { basket: [], view: "basket", named: [], asked: null, likely: null, product: null, drawn: [], drawnFor: [], atlas: null, allMissions: false };
const same = (a, b) => a.length === b.length && a.every((item, i) => item === b[i]);

// A question that several cards share is asked once; one that failed, or whose answer is not final, is asked again by the next card.
function shared(question, isFinal = () => true) {
  let asked = null;
  const forget = () => { asked = null; };
  return () => (asked ??= question().then((answer) => { if (!isFinal(answer)) forget(); return answer; }, (problem) => { forget(); throw problem; }));
}
const model = shared(() => ask("model"), (answer) => answer.size_distribution !== null);
const likelihood = (basket) => shared(() => ask("probability", { basket }));

// -- the address: the basket in the query, a product or another basket in the hash ---------------------------------------------

const query = (list) => String(new URLSearchParams(list.map((item) => [typeof item === "number" ? "id" : "item", item])));
const link = (view, list) => `#${view}${list.length ? "?" + query(list) : ""}`;
const productLink = (item) => link("product", [item]);

function listed(text) {
  const found = [...new URLSearchParams(text)].filter(([name]) => name === "item" || name === "id");
  return [...new Set(found.map(([name, value]) => (name === "id" ? Number(value) : value)))];
}

function read() {
  const [, view, text] = /^#(product|compare)\??(.*)$/.exec(location.hash) ?? [null, "basket", ""];
  state.basket = listed(location.search);
  state.named = listed(text);
  state.view = view === "product" && !state.named.length ? "basket" : view;
}

function go(basket, hash, words) {
  history.pushState(null, "", location.pathname + (basket.length ? "?" + query(basket) : "") + hash);
  say(words);
  read();
  show();
}

const change = (basket, words) => go(basket, state.view === "basket" ? "" : location.hash, words);
const add = (...more) => {
  const fresh = more.filter((item) => !state.basket.includes(item));
  if (fresh.length) change([...state.basket, ...fresh], `${fresh.length === 1 ? shown(fresh[0]) : items(fresh.length)} added, ${items(state.basket.length + fresh.length)} in the basket`);
};
const remove = (item) => change(state.basket.filter((other) => other !== item), `${shown(item)} removed`);
const toggle = (item) => (state.basket.includes(item) ? remove(item) : add(item));

// -- parts of cards --------------------------------------------------------------------------------------------------------------

const product = (item) => make("a", { href: productLink(item) }, named(item));
const plus = (item) => Object.assign(make("button", { class: "plus", "aria-label": `Add ${shown(item)}`, onclick: () => add(item) }, "+"), { item, disabled: state.basket.includes(item) });
const row = (item, words, part, why = null, tone = "") => make("li", { class: "row" },
  make("div", {}, product(item), make("p", { class: "quiet" }, ...words), why, bar(part, { tone })), plus(item));
const rows = (list) => make("ul", { class: "rows" }, ...list);
const chip = (item, drop) => make("li", { class: "chip" }, product(item), make("button", { "aria-label": `Remove ${shown(item)}`, onclick: drop }, "✕"));
const tone = (missions, name) => `m${missions.findIndex((one) => one.name === name) % 12}`;
const missionName = (missions, name) => [make("span", { class: `dot ${tone(missions, name)}` }), named(name)];

// -- the basket, and baskets like it ---------------------------------------------------------------------------------------------

function showBasket() {
  $("basket").replaceChildren(...state.basket.map((item) => chip(item, () => { remove(item); $("search").focus(); })));
  $("empty").hidden = state.basket.length > 0;
  $("basket-tools").hidden = state.basket.length === 0;
  $("trouble").hidden = true;
}

function showFacts() {
  const { basket, likely } = state;
  $("facts-title").textContent = basket.length ? "Baskets like this" : "All baskets";
  fill("likely", async () => [await likely(), await model()], ([answer, m]) => {
    $("about").textContent = `${m.n_items.toLocaleString("en")} items, ${average(m.mean_size)} in a basket on average`;
    const [part, rest] = shareOf(answer.contained, "baskets"), n = basket.length;
    const all = n === 1 ? "hold it" : n === 2 ? "hold both" : `hold all ${n}`;
    const facts = n === 0 ? [fact(`${average(m.mean_size)} items`, "in a basket on average")]
      : answer.contained_size === null ? [fact("Never", "are these bought together")]
      : [fact(part, `${rest} ${all}${n > 1 ? `, ${often(answer.contained_lift)} by chance` : ""}`),
        fact(`${average(answer.contained_size)} items`, `in the end, on average; ${average(m.mean_size)} in all baskets`)];
    return [make("ul", { class: "figures" }, ...facts), sizes(m.size_distribution, answer)];
  }, unknown);
}

const fact = (figure, words) => make("li", {}, make("b", {}, figure), make("span", {}, words));

function sizes(all, { size, size_probability: p, at_most: below }) {
  if (all === null || p === null) return quiet("How large baskets are is not known yet.");
  let total = 0, end = 0;
  while (end < all.length - 1 && (total < 0.985 || end <= size)) total += all[end++];
  const bars = all.slice(0, Math.max(end, 4)), top = Math.max(...bars), width = 340 / bars.length, gap = Math.min(2, width / 4);
  const ticks = bars.map((_, k) => k).filter((k) => k % Math.ceil(bars.length / 10) === 0);
  const chart = drawing("svg", { class: "bars", viewBox: "0 0 340 88", role: "img", "aria-label": "How many items baskets hold" },
    ...bars.map((value, k) => drawing("rect", { class: k === size && k > 0 ? "here" : "", rx: Math.min(2, width / 4), x: k * width + gap / 2, width: Math.max(1, width - gap),
      y: 70 - 66 * value / top, height: Math.max(0.5, 66 * value / top) })),
    ...ticks.map((k) => drawing("text", { x: (k + 0.5) * width, y: 85, "text-anchor": "middle" }, String(k))));
  return make("figure", {}, chart, make("figcaption", { id: "sizes-text", class: "quiet" },
    size === 0 ? `Items in a basket: half of all hold ${median(all)} or fewer.` : `Items in a basket: ${share(p)} of all hold ${size}, like yours; ${share(Math.max(0, 1 - below))} hold more.`));
}

function median(all) {
  let total = 0;
  return all.findIndex((p) => (total += p) >= 0.5);
}

// -- what goes with it -----------------------------------------------------------------------------------------------------------

const RANKINGS = {
  continuation: { text: "What baskets that begin like this hold in the end. Bestsellers count a little less.",
    words: ({ share: p, score, popularity }) => [...inSuch(p), `, ${often(score / popularity)} usual`] },
  completion: { text: "If just one item is missing: which one?", words: ({ share: p }) => inSuch(p, "baskets with just one more item") },
  lift: { text: "What is bought here more often than elsewhere.", words: ({ share: p, score }) => [bold(often(score)), " usual, ", ...inSuch(p, "such baskets", (part) => part)] },
};

function inSuch(p, baskets = "such baskets", shownPart = bold) {
  const [part, rest] = shareOf(p, baskets);
  return ["in ", shownPart(part), rest];
}

// What a score owes to ties and to the mission; what is close to one says nothing.
function reasons({ mission, because, ties, by_item: byItem }, missions, leading) {
  const strong = byItem.filter(({ factor }) => factor > 1.1).slice(0, 2), weak = byItem.at(-1), isTypical = because !== null && mission > 1.1;
  const words = strong.flatMap(({ item }, i) => [i ? " and " : "goes with ", briefly(item)]);
  if (!words.length && ties < 0.9 && weak?.factor < 0.9) words.push("rather not with ", briefly(weak.item));
  if (isTypical && because !== leading) words.push(words.length ? ", " : "", ...missionName(missions, because));
  if (!words.length && !isTypical) words.push("popular in any basket");
  return words.length ? make("p", { class: "why" }, ...words) : null;
}

function showNext() {
  const { basket, likely } = state, chosen = basket.length ? document.querySelector("[name=ranking]:checked").value : "continuation";
  $("ranking").hidden = basket.length === 0;
  $("next-title").textContent = basket.length ? "What goes with it" : "What is bought most";
  fill("next", async () => {
    const answer = await ask("recommend", { basket, n: 10, ranking: chosen, why: true });
    return [answer, ...await Promise.all([model(), likely()]).catch(() => [{ missions: [] }, { missions: [] }])];  // names of missions are not worth a failure
  }, ([answer, { missions }, { missions: [leading] }]) => {
    if (!answer.items.length) return quiet("No item can join this basket.");
    if (!basket.length) return rows(answer.items.map((r) => row(r.item, inSuch(r.share, "all baskets"), r.share)));
    const { text, words } = RANKINGS[chosen], best = Math.max(...answer.items.map((r) => r.score));
    return [quiet(text, ...(leading ? [" Most likely on the mission ", ...missionName(missions, leading.name), "."] : [])),
      rows(answer.items.map((r) => row(r.item, words(r), chosen === "lift" ? r.score / best : r.share, reasons(r, missions, leading?.name))))];
  }, unknown);
}

// -- whole baskets ---------------------------------------------------------------------------------------------------------------

// Draws that hold the basket are draws for it: when it grows, they stay, and only the others are drawn again.
function showWhole(afresh = false) {
  const basket = state.basket, size = $("size").value === "" ? null : Math.round(Number($("size").value));
  const grown = !afresh && state.drawnFor.every((item) => basket.includes(item));
  const stay = grown ? state.drawn.map(({ items: all }) => (all.length > basket.length && basket.every((item) => all.includes(item)) ? all : null)) : [];
  const missing = DRAWN - stay.filter((all) => all !== null).length;
  fill("whole", async () => (missing ? (await ask("complete", { basket, n: missing, size })).baskets : []), (fresh) => {
    state.drawn = Array.from({ length: DRAWN }, (_, i) => (stay[i] ? { items: stay[i] } : fresh.shift()));
    state.drawnFor = basket;
    return state.drawn.map(({ items: all }, i) => drawnCard(all, i));
  }, unknown);
}

function drawnCard(all, i) {
  const added = all.filter((item) => !state.basket.includes(item)), n = all.length - added.length;
  let letters = 0;
  const fit = added.filter((item) => (letters += shown(item).length + 4) <= LETTERS).length, few = added.length - fit > 2 ? fit : added.length;
  const list = make("ul", { class: "chips" }, ...added.map((item, j) => make("li", { class: "take", hidden: j >= few ? "" : null },
    make("button", { "aria-label": `Add ${shown(item)}`, onclick: () => add(item) }, make("span", { "aria-hidden": "true" }, "+ "), named(item)))));
  const more = few < added.length ? make("button", { class: "plain", onclick: (event) => {
    for (const hidden of list.querySelectorAll("[hidden]")) hidden.hidden = false;
    list.querySelectorAll(".take button")[few].focus();
    event.target.remove();
  } }, `${added.length - few} more`) : null;
  const title = !all.length ? "An empty basket" : !n ? items(all.length) : added.length ? `Yours and ${added.length} more` : "Yours as it is";
  const take = added.length ? make("button", { "aria-label": `Take all of basket ${i + 1}`, onclick: () => add(...added) }, "Take all") : null;
  return make("div", { class: "card" }, make("div", { class: "title" }, make("h3", {}, title), take), list, more);
}

// -- missions --------------------------------------------------------------------------------------------------------------------

function missionCard(one, p, missions, isGiven) {
  const typical = one.items.filter(({ item }) => !one.name.includes(item)), four = (typical.length >= TYPICAL ? typical : one.items).slice(0, TYPICAL);
  const [part, rest] = shareOf(p, isGiven ? "such baskets" : "all baskets");
  return make("li", { class: "card mission" }, make("h3", {}, ...missionName(missions, one.name)),
    bar(p, { usual: isGiven ? one.share : null, tone: tone(missions, one.name) }),
    make("p", { class: "quiet" }, bold(part), rest, isGiven ? `; ${share(one.share)} of all` : `, ${average(one.mean_size)} items each`),
    make("ul", { class: "four" }, ...four.map(({ item }) => make("li", {}, make("a", { href: productLink(item) }, briefly(item))))));
}

function showMissions() {
  const { basket, likely } = state;
  fill("missions", async () => [await model(), basket.length ? (await likely()).missions : null], ([{ missions }, given]) => {
    $("missions-card").hidden = missions.length === 0;
    $("missions-text").textContent = given ? "Why people fill such a basket. The mark on a bar shows how common the mission is in all baskets." : "Why people shop here: kinds of baskets that the model has learned.";
    const chance = (one) => (given ? given.find(({ name }) => name === one.name)?.probability ?? 0 : one.share);
    const order = [...missions].sort((a, b) => chance(b) - chance(a)), probable = given ? order.filter((one) => chance(one) > 0) : order;
    const first = state.allMissions ? order : probable.slice(0, CARDS);
    const all = first.length < order.length ? make("button", { onclick: () => { state.allMissions = true; showMissions(); } }, `All ${order.length} missions`) : null;
    return [make("ul", { class: "cards" }, ...first.map((one) => (chance(one) > 0 ? missionCard(one, chance(one), missions, given !== null) : missionCard(one, one.share, missions, false)))), all];
  }, unknown);
}

// -- the map ---------------------------------------------------------------------------------------------------------------------

function showMap() {
  if (state.atlas) { state.atlas.tell(); state.atlas.draw(); return; }
  fill("map", async () => [await ask("map"), await model()], ([{ items: places }, { missions }]) => {
    state.atlas = new Atlas(places, missions.map(({ name }) => name), { held: () => state.basket, toggle, link: productLink });
    buttons(state.atlas);
    return state.atlas.elements;
  });
}

// -- a product -------------------------------------------------------------------------------------------------------------------

const isClear = ({ by_ties: ties }) => ties < 0.9;

function showProduct() {
  const [item] = state.named, held = state.basket.includes(item);
  $("product-add").textContent = held ? "Remove from the basket" : "Add to the basket";
  $("product-add").onclick = () => toggle(item);
  if (state.product === item) return;
  state.product = item;
  $("product-title").replaceChildren(named(item));
  for (const place of ["product-facts", "product-with", "product-instead", "product-missions"]) $(place).replaceChildren();
  const likely = likelihood([item]), related = shared(() => ask(`related?${query([item])}&n=8`));
  fill("product-facts", async () => [await likely(), await model()], ([answer, m]) => {
    const [part, rest] = shareOf(answer.contained, "all baskets");
    return make("ul", { class: "figures across" }, fact(part, rest), answer.contained_size === null ? null
      : fact(`${average(answer.contained_size)} items`, `in the baskets that hold it, on average; ${average(m.mean_size)} in all`));
  });
  fill("product-with", related, ({ probability, complements }) => (complements.length
    ? [quiet("How many baskets with it hold these, too; strongest ties first."), rows(complements.map((r) => row(r.other, [...inSuch(r.together / probability, "baskets with it"), `, ${often(r.lift)} usual`], r.together / probability)))]
    : quiet("Nothing goes with it more often than by chance.")));
  fill("product-instead", related, ({ substitutes }) => (substitutes.some(isClear)
    ? [quiet("What is seldom bought along with it, compared with what missions and popularity suggest."), rows(substitutes.filter(isClear).map((r) => row(r.other, ["together ", bold(often(r.by_ties)), " expected"], 1 - r.by_ties, null, "less")))]
    : quiet("Nothing clearly stands in for it.")));
  fill("product-missions", async () => [await likely(), await model()], ([answer, { missions }]) => {
    $("product-missions-card").hidden = answer.missions.length === 0;
    return make("ul", { class: "cards" }, ...answer.missions.slice(0, 4).map(({ name, probability }) => {
      const one = missions.find((mission) => mission.name === name);
      return make("li", { class: "card mission" }, make("h3", {}, ...missionName(missions, name)), bar(probability, { usual: one.share, tone: tone(missions, name) }),
        make("p", { class: "quiet" }, bold(share(probability)), ` of the baskets with it; ${share(one.share)} of all. ${average(one.mean_size)} items each.`));
    }));
  });
  $("product-title").focus({ preventScroll: true });
  scrollTo({ top: 0 });
}

// -- two baskets -----------------------------------------------------------------------------------------------------------------

const swapOther = (list, words) => go(state.basket, link("compare", list), words);

function showCompare() {
  const [a, b] = [state.basket, state.named];
  $("first").replaceChildren(...a.map((item) => chip(item, () => remove(item))));
  $("other").replaceChildren(...b.map((item) => chip(item, () => swapOther(b.filter((one) => one !== item), `${shown(item)} removed from the other basket`))));
  const both = (path, body = {}) => Promise.all([a, b].map((basket) => ask(path, { basket, ...body })));
  const cell = (p, letter, text = share(p)) => make("td", {}, make("span", { class: "figure" }, text), p === null ? null : bar(p, { tone: letter }));
  const line = (head, cells) => make("tr", {}, make("th", { scope: "row" }, head), ...cells);
  const table = (name, body) => make("table", { class: "compared" }, make("caption", { class: "unseen" }, name),
    make("thead", {}, make("tr", {}, make("td", {}), ...["A", "B"].map((letter) => make("th", { scope: "col" }, make("span", { class: letter === "A" ? "letter" : "letter other" }, letter))))), make("tbody", {}, ...body));
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
  }, unknown);
  fill("compare-next", async () => {
    const best = await both("recommend", { n: 8 });
    const union = [...new Set(best.flatMap((one) => one.items.map(({ item }) => item)))];
    return union.length ? both("recommend", { n: union.length, candidates: union }) : [{ items: [] }, { items: [] }];
  }, (found) => {
    const chance = (i, item) => found[i].items.find((r) => r.item === item)?.score ?? (([a, b][i].includes(item)) ? null : 0);
    const union = [...new Set(found.flatMap((one) => one.items.map(({ item }) => item)))];
    const most = (item) => Math.max(chance(0, item) ?? 0, chance(1, item) ?? 0);
    return [quiet("In how many baskets that begin like A, or like B, an item is in the end."),
      table("What usually comes next", union.sort((x, y) => most(y) - most(x)).map((item) => line(product(item), [0, 1].map((i) => cell(chance(i, item), "ab"[i], chance(i, item) === null ? "in it" : share(chance(i, item)))))))];
  }, unknown);
}

// -- all of it -------------------------------------------------------------------------------------------------------------------

// An item of the address that the model does not know is named beside the basket, with what to do about it; cards wait for that.
function unknown(problem) {
  const label = problem.label ?? problem.item;
  if (label === undefined || !state.basket.includes(label)) return null;
  const swap = (other) => change(state.basket.map((item) => (item === label ? other : item)), `${shown(label)} replaced by ${shown(other)}`);
  $("trouble").replaceChildren(make("p", {}, problem.detail),
    ...(problem.suggestions ?? []).filter((other) => !state.basket.includes(other)).map((other) => make("button", { onclick: () => swap(other) }, "Replace by ", named(other))),
    make("button", { onclick: () => remove(label) }, "Remove it"));
  $("trouble").hidden = false;
  return quiet("Waits for the basket, which names an item that is not known here.");
}

function show() {
  const changed = state.asked === null || !same(state.asked, state.basket);
  for (const view of ["basket", "product", "compare"]) $(`view-${view}`).hidden = view !== state.view;
  document.body.dataset.view = state.view;
  if (changed) {
    Object.assign(state, { asked: state.basket, likely: likelihood(state.basket) });
    for (const button of document.querySelectorAll(".plus")) button.disabled = state.basket.includes(button.item);
    showBasket(); showNext(); showFacts(); showWhole(); showMissions();
  }
  showMap();
  if (state.view === "product") showProduct(); else state.product = null;
  if (state.view === "compare") showCompare();
}

const own = { held: () => state.basket, add, back: () => state.basket.length && remove(state.basket.at(-1)) };
$("search-place").append(searchBox("search", "Add an item", own));
$("first-place").append(searchBox("search-first", "Add an item to A", own));
$("other-place").append(searchBox("search-other", "Add an item to B", { held: () => state.named,
  add: (item) => swapOther([...state.named, item], `${shown(item)} added to the other basket`),
  back: () => state.named.length && swapOther(state.named.slice(0, -1), "The last item was removed from the other basket") }));
const toSearch = () => $(state.view === "compare" ? "search-first" : "search").focus();
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName) && document.activeElement.type !== "radio";
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) { event.preventDefault(); toSearch(); }
});
$("skip").addEventListener("click", (event) => { event.preventDefault(); toSearch(); });
$("clear").addEventListener("click", () => { change([], "The basket is empty"); $("search").focus(); });
$("share").addEventListener("click", async () => {
  try { await navigator.clipboard.writeText(location.href); say("Link copied"); $("share").textContent = "Copied"; }
  catch { say("The address of this page is the link"); $("share").textContent = "Copy the address"; }
  setTimeout(() => { $("share").textContent = "Copy link"; }, 2000);
});
$("compare").addEventListener("click", () => { go(state.basket, link("compare", state.basket), "The other basket begins as a copy of yours"); $("compare-title").focus({ preventScroll: true }); scrollTo({ top: 0 }); });
$("swap").addEventListener("click", () => go(state.named, link("compare", state.basket), "The baskets have changed places"));
$("ranking").addEventListener("change", showNext);
$("size").addEventListener("change", () => showWhole(true));
$("again").addEventListener("click", () => showWhole(true));
window.addEventListener("popstate", () => { read(); show(); });
read();
show();
