// Elements of the page. Labels reach the document as text and nothing else.

import { hasName, learn, parts, pictures, readable, share, shown } from "./words.js";

export const $ = (id) => document.getElementById(id);

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

export function drawing(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// An element about an item, which `tell` fills; it is filled again when the name of the item is learned.
function about(item, element, tell) {
  tell();
  return Object.assign(element, { item, tell });
}
function retell(fresh) {
  if (fresh.length) for (const element of document.querySelectorAll("bdi, button, .picture")) if (fresh.some(([label]) => label === String(element.item))) element.tell?.();
}

export const named = (item) => {
  const element = make("bdi");
  return about(item, element, () => {
    const [code, name] = parts(item), both = code ? [make("span", { class: "code" }, code), " ", name] : [name];
    element.replaceChildren(...(hasName(item) ? both.reverse() : both));
  });
};
// The picture of an item, beside its name, which in a list says all there is to say: a frame of one size, which is empty without a picture
// that loads, and is not shown where no other one in its list has any. A path is one in the server's folder of pictures.
export const picture = (item, isAlone = false) => {
  const frame = make("span", { class: "picture" });
  return about(item, frame, () => {
    const place = pictures.get(String(item)), path = place && (/^https?:/.test(place) ? place : `pictures/${place.split("/").map(encodeURIComponent).join("/")}`);
    frame.replaceChildren(...(path ? [make("img", { src: path, alt: isAlone ? shown(item) : "", width: 96, height: 96, loading: "lazy", decoding: "async", onerror: (event) => event.target.remove() })] : []));
  });
};
export const briefly = (item) => make("bdi", { title: parts(item).join(" ").trim() }, parts(item)[1]);
export const plain = (text) => make("bdi", {}, readable(text));
// A button that does something with an item, "Add Bread".
export const acting = (item, verb, button) => about(item, button, () => button.setAttribute("aria-label", `${verb} ${shown(item)}`));
export const quiet = (...children) => make("p", { class: "quiet" }, ...children);
export const bold = (...text) => make("b", {}, ...text);
export const say = (text) => { $("said").textContent = text; };

// A bar, and a mark where it would usually end.
export function bar(part, { usual = null, tone = "" } = {}) {
  const width = (x) => `${Math.max(0, Math.min(100, 100 * x))}%`;
  const full = make("span", { class: "full" }), mark = usual === null ? null : make("span", { class: "mark-usual" });
  full.style.width = width(part);
  if (mark) mark.style.left = width(usual);
  return make("span", { class: `bar ${tone}`, "aria-hidden": "true" }, full, mark);
}

// How many items baskets hold: a bar for each size, one of them `here`, and a line for what is usual.
export function sizeChart(law, { here = 0, usual = null, caption }) {
  const end = (all) => { let total = 0; return all.findIndex((p) => (total += p) >= 0.985) + 1 || all.length; };
  const n = Math.max(4, here + 1, end(law), usual === null ? 0 : end(usual)), at = (all, k) => all[k] ?? 0, sizes = Array.from({ length: n }, (_, k) => k);
  const top = Math.max(...sizes.map((k) => Math.max(at(law, k), usual === null ? 0 : at(usual, k)))), width = 340 / n, gap = Math.min(2, width / 4);
  const y = (p) => 70 - 66 * p / top, steps = usual === null ? "" : sizes.map((k) => `${k ? "L" : "M"}${k * width} ${y(at(usual, k))}h${width}`).join("");
  const chart = drawing("svg", { class: `bars${usual === null ? "" : " compared-bars"}`, viewBox: "0 0 340 88", role: "img", "aria-label": "How many items baskets hold" },
    ...sizes.map((k) => drawing("rect", { class: k === here && k > 0 ? "here" : "", rx: Math.min(2, width / 4),
      x: k * width + gap / 2, width: Math.max(1, width - gap), y: Math.min(69.5, y(at(law, k))), height: Math.max(0.5, 70 - y(at(law, k))) })),
    ...(steps ? [drawing("path", { d: steps })] : []),
    ...sizes.filter((k) => k % Math.ceil(n / 10) === 0).map((k) => drawing("text", { x: (k + 0.5) * width, y: 85, "text-anchor": "middle" }, String(k))));
  return make("figure", {}, chart, make("figcaption", { class: "quiet" }, caption));
}

// -- asking -------------------------------------------------------------------------------------------------------------------

// What every question with a body says.
export const always = {};

export async function ask(path, body) {
  const options = body ? { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ ...body, ...always }) } : {};
  let response;
  try {
    response = await fetch("api/" + path, options);
  } catch {
    throw { detail: "The server does not answer.", retry: true };
  }
  const answer = await response.json().catch(() => ({ detail: `The server answered with status ${response.status}.` }));
  retell(learn(answer));
  if (!response.ok) throw { ...answer, retry: response.status >= 500 };
  return answer;
}

const asked = {};

// Ask for one card, and show the answer unless something else was asked for it in the meantime. A card fails alone, and is asked again alone.
export async function fill(place, question, show, refused = () => null) {
  const card = $(place), turn = asked[place] = (asked[place] ?? 0) + 1, hadFocus = card.contains(document.activeElement);
  if (!card.childElementCount || card.querySelector(".trouble")) card.replaceChildren(...[5, 4, 3].map((n) => make("span", { class: `bone b${n}` })));
  card.setAttribute("aria-busy", "true");
  let children;
  try {
    children = [show(await question())].flat();
  } catch (problem) {
    if (problem instanceof Error) throw problem;
    const words = turn === asked[place] ? refused(problem) : null;
    const again = problem.retry ? make("button", { onclick: () => fill(place, question, show, refused) }, "Try again") : null;
    children = [words ?? make("div", { class: "trouble" }, make("p", {}, problem.detail), again)];
    if (turn === asked[place] && !words) say(problem.detail);
  }
  if (turn !== asked[place]) return;
  card.replaceChildren(...children.filter((child) => child !== null));
  card.removeAttribute("aria-busy");
  if (hadFocus && [document.body, null].includes(document.activeElement)) card.querySelector("a, button:enabled")?.focus({ preventScroll: true });
}

// -- the search ----------------------------------------------------------------------------------------------------------------

// A box to find an item by name: what is chosen goes to `add`; Backspace in an empty box goes to `back`.
export function searchBox(id, label, { held, add, back }) {
  let turn = 0;
  const list = make("ul", { id: `${id}-found`, role: "listbox", "aria-label": "Items found", hidden: "" });
  const input = make("input", { id, type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", "aria-autocomplete": "list",
    "aria-expanded": "false", "aria-controls": list.id, placeholder: "Type a name" });
  const options = () => [...list.children];
  const current = () => options().findIndex((option) => option.getAttribute("aria-selected") === "true");
  const select = (index) => {
    options().forEach((option, i) => option.setAttribute("aria-selected", String(i === index)));
    const chosen = options()[index];
    if (chosen) { input.setAttribute("aria-activedescendant", chosen.id); chosen.scrollIntoView({ block: "nearest" }); }
    else input.removeAttribute("aria-activedescendant");
  };
  const close = () => {
    turn += 1;
    list.hidden = true;
    list.replaceChildren();
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const choose = (item) => { input.value = ""; close(); add(item); };
  const search = async () => {
    const mine = ++turn;
    let answer;
    try {
      answer = await ask("items?" + new URLSearchParams({ q: input.value, limit: 12 }));
    } catch (problem) {
      return say(problem.detail ?? "");
    }
    if (mine !== turn) return;
    const found = answer.items.filter(({ item }) => !held().includes(item));
    list.replaceChildren(...found.map(({ item, probability }, i) => make("li", {
      role: "option", id: `${id}-option-${i}`, "aria-selected": "false", onmousedown: (event) => { event.preventDefault(); choose(item); } },
      picture(item), named(item), make("span", {}, share(probability)))));
    list.hidden = found.length === 0;
    input.setAttribute("aria-expanded", String(found.length > 0));
    say(found.length ? `${answer.total.toLocaleString("en")} found` : "Nothing found");
    if (input.value && found.length) select(0);
  };
  const KEYS = {
    ArrowDown: () => (list.hidden ? search() : select(Math.min(current() + 1, options().length - 1))),
    ArrowUp: () => select(Math.max(current() - 1, 0)),
    Enter: () => options()[current()]?.dispatchEvent(new MouseEvent("mousedown", { cancelable: true })),
    Escape: close,
  };
  input.addEventListener("input", () => (input.value ? search() : close()));
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Backspace" && !input.value) back();
    if (event.key in KEYS) { event.preventDefault(); KEYS[event.key](); }
  });
  return make("div", { class: "search" }, make("label", { for: id }, label), input, list);
}
