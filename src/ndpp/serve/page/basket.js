// The basket: what is in it, its address, and the parts that cards are made of.

import { $, acting, ask, bar, bold, make, named, picture, plain, quiet, say } from "./elements.js";
import { items, shareOf, shown } from "./words.js";

export const state = { basket: [], view: "basket", named: [] };

// A question that several cards share is asked once; one that failed, or whose answer is not final, is asked again by the next card.
export function shared(question, isFinal = () => true) {
  let asked = null;
  const forget = () => { asked = null; };
  return () => (asked ??= question().then((answer) => { if (!isFinal(answer)) forget(); return answer; }, (problem) => { forget(); throw problem; }));
}
export const model = shared(() => ask("model"), (answer) => answer.size_distribution !== null);
export const likelihood = (basket) => shared(() => ask("probability", { basket }));

// -- the address: the basket in the query, a product or another basket in the hash ---------------------------------------------

export const query = (list) => String(new URLSearchParams(list.map((item) => [typeof item === "number" ? "id" : "item", item])));
export const link = (view, list) => `#${view}${list.length ? "?" + query(list) : ""}`;
export const productLink = (item) => link("product", [item]);

function listed(text) {
  const found = [...new URLSearchParams(text)].filter(([name]) => name === "item" || name === "id");
  return [...new Set(found.map(([name, value]) => (name === "id" ? Number(value) : value)))];
}

export function read() {
  const [, view, text] = /^#(product|compare)\??(.*)$/.exec(location.hash) ?? [null, "basket", ""];
  state.basket = listed(location.search);
  state.named = listed(text);
  state.view = view === "product" && !state.named.length ? "basket" : view;
}

export function go(basket, hash, words) {
  history.pushState(null, "", location.pathname + (basket.length ? "?" + query(basket) : "") + hash);
  dispatchEvent(new PopStateEvent("popstate"));
  say(words);
}

export const change = (basket, words) => go(basket, state.view === "basket" ? "" : location.hash, words);
export const add = (...more) => {
  const fresh = more.filter((item) => !state.basket.includes(item));
  const what = fresh.length === 1 ? shown(fresh[0]) : items(fresh.length), n = state.basket.length + fresh.length;
  if (fresh.length) change([...state.basket, ...fresh], `${what} added, ${items(n)} in the basket`);
};
export const remove = (item) => change(state.basket.filter((other) => other !== item), `${shown(item)} removed`);
export const toggle = (item) => (state.basket.includes(item) ? remove(item) : add(item));

// -- parts of cards --------------------------------------------------------------------------------------------------------------

export const product = (item) => make("a", { href: productLink(item) }, named(item));
const plus = (item) => Object.assign(acting(item, "Add", make("button", { class: "plus", onclick: () => add(item) }, "+")),
  { disabled: state.basket.includes(item) });
export const row = (item, words, part, why = null, tone = "") => make("li", { class: "row" },
  picture(item), make("div", {}, product(item), make("p", { class: "quiet" }, ...words), why, bar(part, { tone })), plus(item));
export const rows = (list) => make("ul", { class: "rows" }, ...list);
export const chip = (item, drop) => make("li", { class: "chip" }, product(item), acting(item, "Remove", make("button", { onclick: drop }, "✕")));
export const tone = (missions, name) => (missions.length ? `m${missions.findIndex((one) => one.name === name) % 12}` : "");
export const missionName = (missions, name) => [make("span", { class: `dot ${tone(missions, name)}` }), plain(name)];
export const fact = (figure, words) => make("li", {}, make("b", {}, figure), make("span", {}, words));

export function inSuch(p, baskets = "such baskets", shownPart = bold) {
  const [part, rest] = shareOf(p, baskets);
  return ["in ", shownPart(part), rest];
}

// An item of the address that the model does not know is named beside the basket, with what to do about it; cards wait for that.
export function unknown(problem) {
  const label = problem.label ?? problem.item;
  if (label === undefined || !state.basket.includes(label)) return null;
  const swap = (other) => change(state.basket.map((item) => (item === label ? other : item)), `${shown(label)} replaced by ${shown(other)}`);
  $("trouble").replaceChildren(make("p", {}, problem.detail),
    ...(problem.suggestions ?? []).filter((other) => !state.basket.includes(other)).map((other) => make("button", { onclick: () => swap(other) }, "Replace by ", named(other))),
    make("button", { onclick: () => remove(label) }, "Remove it"));
  $("trouble").hidden = false;
  return quiet("Waits for the basket, which names an item that is not known here.");
}
