// The page: a basket, and what the model says about it.

import { $, acting, ask, bar, bold, briefly, fill, make, quiet, say, searchBox, sizeChart } from "./elements.js";
import { add, change, chip, fact, inSuch, likelihood, missionName, model, product, productLink, read, remove, row, rows, state, toggle, tone, unknown } from "./basket.js";
import { showChanges } from "./changes.js";
import { showCompare } from "./compare.js";
import { isChosen, offerContext } from "./context.js";
import { boughtBefore, isNamed, offerCustomer, tell, whose } from "./customer.js";
import { inWords, offerLimits } from "./limits.js";
import { Atlas, buttons } from "./map.js";
import { leaveProduct, showProduct } from "./product.js";
import { average, items, median, often, share, shareOf, shown } from "./words.js";

const DRAWN = 4, LETTERS = 260, TYPICAL = 4, CARDS = matchMedia("(max-width: 40rem)").matches ? 4 : 8;
Object.assign(state, { asked: null, likely: null, drawn: [], drawnFor: [], atlas: null, allMissions: false });
const same = (a, b) => a.length === b.length && a.every((item, i) => item === b[i]);

// -- the basket, and baskets like it ---------------------------------------------------------------------------------------------

function showBasket() {
  $("basket").replaceChildren(...state.basket.map((item) => chip(item, () => { remove(item); $("search").focus(); })));
  $("empty").hidden = state.basket.length > 0;
  $("basket-tools").hidden = state.basket.length === 0;
  $("trouble").hidden = true;
}

function showFacts() {
  const { basket, likely } = state;
  $("facts-title").textContent = basket.length ? "Baskets like this" : isChosen() ? "Such baskets" : "All baskets";
  fill("likely", async () => [await likely(), await model()], ([answer, m]) => {
    const [part, rest] = shareOf(answer.contained, "baskets"), n = basket.length;
    const all = n === 1 ? "hold it" : n === 2 ? "hold both" : `hold all ${n}`;
    const facts = n === 0 ? [fact(`${average(isChosen() ? answer.contained_size : m.mean_size)} items`, "in a basket on average")]
      : answer.contained_size === null ? [fact("Never", "are these bought together")]
      : [fact(part, `${rest} ${all}${n > 1 ? `, ${often(answer.contained_lift)} by chance` : ""}`),
        fact(`${average(answer.contained_size)} items`, `in the end, on average; ${average(m.mean_size)} in all baskets`)];
    return [make("ul", { class: "figures" }, ...facts), sizes(m.size_distribution, answer)];
  }, unknown);
}

function sizes(all, { size }) {
  if (all === null) return quiet("How large baskets are is not known yet.");
  const more = all.slice(size + 1).reduce((sum, p) => sum + p, 0);
  return sizeChart(all, { here: size, caption: size === 0 ? `Items in a basket: half of all hold ${median(all)} or fewer.`
    : `Items in a basket: ${share(all[size] ?? 0)} of all hold ${size}, like yours; ${share(more)} hold more.` });
}

// -- what goes with it -----------------------------------------------------------------------------------------------------------

const RANKINGS = {
  continuation: { text: "What baskets with these items also hold. Popular items are ranked a little lower.",
    words: ({ share: p, score, popularity }) => [...inSuch(p), `, ${often(score / popularity)} usual`] },
  completion: { text: "If just one item is missing: which one?", words: ({ share: p }) => inSuch(p, "baskets with just one more item") },
  lift: { text: "What is bought here more often than elsewhere.",
    words: ({ share: p, score }) => [bold(`${often(score)} usual`), ", ", ...inSuch(p, "such baskets", String)] },
};

// The missions, for their colours, which are not worth a failure or a wait.
const colours = () => Promise.race([model().then(({ missions }) => missions, () => []), new Promise((done) => { setTimeout(done, 1000, []); })]);

// What a score owes to ties and to a mission, unless that is told above the list; what is close to one says nothing.
function reasons({ mission, because, ties, usual = 0, by_item: byItem }, missions, leading) {
  const strong = byItem.filter(({ factor }) => factor > 1.1).slice(0, 2), weak = byItem.at(-1), isTypical = because !== null && mission > 1.1;
  const words = strong.flatMap(({ item }, i) => [i ? " and " : "goes with ", briefly(item)]);
  if (!words.length && ties < 0.9 && weak?.factor < 0.9) words.push("rather not with ", briefly(weak.item));
  if (isTypical && because !== leading) words.push(words.length ? ", " : "", ...missionName(missions, because));
  if (!words.length && !isTypical && !usual) words.push("popular in any basket");
  return words.length ? make("p", { class: "why" }, ...words) : null;
}

function showNext() {
  const basket = state.basket, limits = inWords(true), who = whose(), chosen = basket.length ? document.querySelector("[name=ranking]:checked").value : "continuation";
  $("ranking").hidden = basket.length === 0;
  $("staples-choice").hidden = basket.length === 0 || chosen === "completion";
  $("next-title").textContent = basket.length ? "What goes with it" : isNamed() ? "What comes next" : "What is bought most";
  fill("next", () => Promise.all([ask("recommend", { basket, n: 10, ranking: chosen, staples: $("staples").checked, why: true, limits, ...who }), colours()]), ([answer, missions]) => {
    tell(answer, who);
    if (!answer.items.length) return quiet(limits.length ? "Nothing else fits within the limits." : "No item can join this basket.");
    const next = (r) => (answer.customer === "known" ? ["expected ", ...inSuch(r.share, "their baskets")] : inSuch(r.share, isChosen() ? "such baskets" : "all baskets"));
    if (!basket.length) return rows(answer.items.map((r) => row(r.item, next(r), r.share, boughtBefore(r))));
    const { text, words } = RANKINGS[chosen], best = Math.max(...answer.items.map((r) => r.score));
    const because = answer.items.filter((r) => r.because !== null && r.mission > 1.1).map((r) => r.because);
    const many = (name) => because.filter((other) => other === name).length;
    const leading = because.find((name) => many(name) > answer.items.length / 3 && many(name) === Math.max(...because.map(many)));
    return [quiet(text, ...(leading ? [" Most of it due to the mission ", ...missionName(missions, leading), "."] : [])),
      rows(answer.items.map((r) => row(r.item, words(r), chosen === "lift" ? r.score / best : r.share, make("div", {}, boughtBefore(r), reasons(r, missions, leading)))))];
  }, unknown);
}

// -- whole baskets ---------------------------------------------------------------------------------------------------------------

// Draws that hold the basket are draws for it: when it grows, they stay, and only the others are drawn again.
function showWhole(afresh = false) {
  const basket = state.basket, size = $("size").value === "" ? null : Math.round(Number($("size").value));
  const grown = !afresh && state.drawnFor.every((item) => basket.includes(item));
  const holds = (all) => all.length > basket.length && basket.every((item) => all.includes(item));
  const stay = grown ? state.drawn.map(({ items: all }) => (holds(all) ? all : null)) : [];
  const missing = DRAWN - stay.filter((all) => all !== null).length;
  fill("whole", async () => (missing ? (await ask("complete", { basket, n: missing, size, limits: inWords(), ...whose() })).baskets : []), (fresh) => {
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
    acting(item, "Add", make("button", { onclick: () => add(item) }, make("span", { "aria-hidden": "true" }, "+ "), briefly(item))))));
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
  const typical = one.items.filter(({ item }) => !one.name.includes(shown(item)) && !one.name.includes(item)), four = (typical.length >= TYPICAL ? typical : one.items).slice(0, TYPICAL);
  const [part, rest] = shareOf(p, isGiven ? "such baskets" : "all baskets");
  return make("li", { class: "card mission" }, make("h3", {}, ...missionName(missions, one.name)),
    bar(p, { usual: isGiven ? one.share : null, tone: tone(missions, one.name) }),
    make("p", { class: "quiet" }, bold(part), rest, isGiven ? `; ${share(one.share)} of all` : `, ${average(one.mean_size)} items each`),
    make("ul", { class: "four" }, ...four.map(({ item }) => make("li", {}, make("a", { href: productLink(item) }, briefly(item))))));
}

function showMissions() {
  const { basket, likely } = state;
  fill("missions", async () => [await model(), basket.length || isChosen() ? (await likely()).missions : null], ([{ missions }, given]) => {
    $("missions-card").hidden = missions.length === 0;
    $("missions-text").textContent = given ? `Why people ${basket.length ? "fill such a basket" : "shop then and there"}. The mark on a bar shows how common the mission is in all baskets.`
      : "Why people shop here: kinds of baskets that the model has learned.";
    const chance = (one) => (given ? given.find(({ name }) => name === one.name)?.probability ?? 0 : one.share);
    const order = [...missions].sort((a, b) => chance(b) - chance(a)), probable = given ? order.filter((one) => chance(one) > 0) : order;
    const first = state.allMissions ? order : probable.slice(0, given ? 4 : CARDS);
    const all = first.length < order.length ? make("button", { onclick: () => { state.allMissions = true; showMissions(); } }, `All ${order.length} missions`) : null;
    const card = (one) => (chance(one) > 0 ? missionCard(one, chance(one), missions, given !== null) : missionCard(one, one.share, missions, false));
    return [make("ul", { class: "cards" }, ...first.map(card)), all];
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

// -- all of it -------------------------------------------------------------------------------------------------------------------

function show() {
  const changed = state.asked === null || !same(state.asked, state.basket);
  model().then((m) => { $("about").textContent = `${m.n_items.toLocaleString("en")} items, ${average(m.mean_size)} in a basket on average`; }, () => null);
  for (const view of ["basket", "product", "compare"]) $(`view-${view}`).hidden = view !== state.view;
  document.body.dataset.view = state.view;
  if (changed) {
    Object.assign(state, { asked: state.basket, likely: likelihood(state.basket) });
    showBasket(); showNext(); showFacts(); showWhole(); showMissions();
    for (const button of document.querySelectorAll(".plus")) button.disabled = state.basket.includes(button.item);
  }
  offerCustomer(() => { showNext(); showWhole(true); }).catch(() => null);
  offerContext(afresh).catch(() => null);
  offerLimits(() => { showNext(); showWhole(true); }).catch(() => null);
  showMap();
  showChanges();
  if (state.view === "product") showProduct(); else leaveProduct();
  if (state.view === "compare") showCompare();
}

// In another context everything is asked again.
function afresh() {
  Object.assign(state, { asked: null, drawn: [] });
  if (state.view === "product") showProduct(true);
  show();
}

const own = { held: () => state.basket, add, back: () => state.basket.length && remove(state.basket.at(-1)) };
$("search-place").append(searchBox("search", "Add an item", own));
$("first-place").append(searchBox("search-first", "Add an item to A", own));
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
for (const choice of ["ranking", "staples"]) $(choice).addEventListener("change", showNext);
$("size").addEventListener("change", () => showWhole(true));
$("again").addEventListener("click", () => showWhole(true));
window.addEventListener("popstate", () => { read(); show(); });
read();
show();
