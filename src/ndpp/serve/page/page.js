// The page: a basket, and what the model says about it. Labels reach the document through textContent and nothing else.

const $ = (id) => document.getElementById(id);
const state = { basket: [], focus: null, model: null, map: null, turn: 0, search: 0, asked: {} };
const percent = (p) => (p >= 0.1 ? (100 * p).toFixed(0) : (100 * p).toPrecision(p > 0 ? 2 : 1)) + " %";
const times = (x) => "×" + (x >= 100 ? Math.round(x).toLocaleString("en") : Number(x.toPrecision(x >= 1 ? 3 : 2)));
const items = (n) => (n === 1 ? "1 item" : `${n} items`);

// -- building elements --------------------------------------------------------------------------------------------------------

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function drawing(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const named = (item) => make("bdi", {}, String(item));
const quiet = (text) => make("p", { class: "quiet" }, text);
const say = (text) => { $("said").textContent = text; };

// -- asking -------------------------------------------------------------------------------------------------------------------

async function ask(path, body) {
  const options = body ? { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) } : {};
  let response;
  try {
    response = await fetch("api/" + path, options);
  } catch {
    throw { detail: "The server does not answer.", retry: true };
  }
  const answer = await response.json().catch(() => ({ detail: `The server answered with status ${response.status}.` }));
  if (!response.ok) throw { ...answer, retry: response.status >= 500 };
  return answer;
}

// Ask, and show the answer unless something else was asked for the same place in the meantime.
async function fill(place, question, show) {
  const turn = state.asked[place] = (state.asked[place] ?? 0) + 1;
  const put = (...children) => { if (turn === state.asked[place]) $(place).replaceChildren(...children); };
  $(place).setAttribute("aria-busy", "true");
  try {
    put(...[show(await question())].flat());
  } catch (problem) {
    put(...trouble(problem, () => fill(place, question, show)));
  }
  if (turn === state.asked[place]) $(place).removeAttribute("aria-busy");
}

function trouble(problem, again) {
  if (problem instanceof Error) throw problem;
  const retry = problem.retry ? make("button", { onclick: again }, "Try again") : null;
  return [make("p", { class: "trouble" }, problem.detail), ...(retry ? [retry] : [])];
}

// -- the basket and the address ------------------------------------------------------------------------------------------------

function address() {
  const query = new URLSearchParams(state.basket.map((item) => [typeof item === "number" ? "id" : "item", item]));
  return location.pathname + (query.size ? "?" + query : "");
}

function read() {
  const found = [...new URLSearchParams(location.search)].filter(([name]) => name === "item" || name === "id");
  state.basket = [...new Set(found.map(([name, value]) => (name === "id" ? Number(value) : value)))];
  state.focus = state.basket.at(-1) ?? null;
}

function change(basket, words) {
  state.basket = basket;
  if (!basket.includes(state.focus)) state.focus = basket.at(-1) ?? null;
  history.pushState(null, "", address());
  say(words);
  refresh();
}

const add = (item) => {
  if (state.basket.includes(item)) return;
  state.focus = item;
  change([...state.basket, item], `${item} added, ${items(state.basket.length + 1)} in the basket`);
};
const remove = (item) => change(state.basket.filter((other) => other !== item), `${item} removed`);

function showBasket() {
  $("basket").replaceChildren(...state.basket.map((item) => make("li", { class: "chip" },
    make("button", { "aria-pressed": String(item === state.focus), title: "Show what goes with it", onclick: () => { state.focus = item; showBasket(); showRelated(); } }, named(item)),
    make("button", { "aria-label": `Remove ${item}`, onclick: () => { remove(item); $("search").focus(); } }, "✕"))));
  $("empty").hidden = state.basket.length > 0;
  $("clear").hidden = state.basket.length === 0;
  $("share").hidden = state.basket.length === 0;
}

// -- what the model says --------------------------------------------------------------------------------------------------------

function oneIn(logProb) {
  const n = Math.exp(-logProb);
  if (n < 1e6) return Math.max(1, Math.round(n)).toLocaleString("en");
  const [size, word] = n < 1e9 ? [1e6, "million"] : n < 1e12 ? [1e9, "billion"] : [0, ""];
  return size ? `${(n / size).toPrecision(2)} ${word}` : `10^${(-logProb / Math.LN10).toFixed(0)}`;
}

function likelihood(answer) {
  $("trouble").hidden = true;
  showSizes(answer);
  const facts = answer.log_prob === null
    ? [make("li", {}, "This basket never occurs by itself.")]
    : [make("li", {}, make("b", {}, `1 in ${oneIn(answer.log_prob)}`), " baskets is exactly this one"),
      answer.size > 1 ? make("li", {}, make("b", {}, times(Math.exp(answer.log_lift))), " as likely as with independent items") : null];
  const missions = answer.missions.map((m) => make("li", {}, make("b", {}, percent(m.probability)), " ", named(m.name)));
  return [make("ul", { class: "facts" }, ...facts),
    ...(missions.length ? [make("h3", {}, "Probable missions"), make("ul", { class: "facts" }, ...missions)] : [])];
}

function showSizes({ size, size_probability: p, at_most: below }) {
  const all = state.model.size_distribution;
  if (all === null || p === null) {
    $("sizes").replaceChildren();
    $("sizes-text").textContent = "How large baskets are is not known yet.";
    return;
  }
  let total = 0, end = 0;
  while (end < all.length - 1 && (total < 0.995 || end <= size)) total += all[end++];
  const shown = all.slice(0, Math.max(end, 4)), top = Math.max(...shown), width = 340 / shown.length;
  const bars = shown.map((value, k) => drawing("rect", {
    class: k === size ? "here" : "", x: k * width + Math.min(1, width / 8), width: Math.max(1, width - Math.min(2, width / 4)),
    y: 70 - 66 * value / top, height: Math.max(0.5, 66 * value / top) }));
  const ticks = shown.map((_, k) => k).filter((k) => k % Math.ceil(shown.length / 10) === 0)
    .map((k) => drawing("text", { x: (k + 0.5) * width, y: 84, "text-anchor": "middle" }, String(k)));
  $("sizes").replaceChildren(drawing("svg", { class: "bars", viewBox: "0 0 340 88", role: "img", "aria-label": "Distribution of basket sizes" }, ...bars, ...ticks));
  $("sizes-text").textContent = `${items(size)}: ${percent(p)} of baskets are of this size, ${percent(Math.max(0, below - p))} are smaller, ${percent(1 - below)} larger.`;
}

function row(item, value, share, why, less = false) {
  const bar = make("span", { class: "bar" });
  bar.style.width = `${Math.max(0, Math.min(100, 100 * share))}%`;
  return make("li", {}, make("button", { class: less ? "row less" : "row", title: "Put it into the basket", onclick: () => add(item) },
    named(item), make("span", { class: "value" }, value), why ? make("span", { class: "why" }, ...why) : null, bar));
}

// What a score owes to the mission and to ties; what is close to one says nothing.
function reasons({ mission, because, ties, by_item: byItem }) {
  if (mission === undefined) return null;
  const told = because !== null && (mission > 1.1 || mission < 0.9) ? [mission > 1 ? "mission " : "not of the mission ", named(because), ` ${times(mission)}`] : [];
  const strong = byItem.filter(({ factor }) => factor > 1.1).slice(0, 2);
  const bound = strong.flatMap(({ item, factor }, i) => [i ? ", " : "thanks to ", named(item), ` ${times(factor)}`]);
  if (!bound.length && ties < 0.9) bound.push(`despite the basket ${times(ties)}`);
  if (told.length && bound.length) told.push(", ");
  return told.length || bound.length ? [...told, ...bound] : ["popular in any basket"];
}

function showNext() {
  const ranking = $("ranking").value, unit = ranking === "continuation" ? percent : times;
  fill("next", () => ask("recommend", { basket: state.basket, n: 10, ranking, why: state.basket.length > 0 }), (answer) => {
    if (!answer.items.length) return quiet("No item can join this basket.");
    const best = Math.max(...answer.items.map((r) => r.score));
    return [quiet(answer.meaning), make("ul", { class: "rows" }, ...answer.items.map((r) => row(r.item, unit(r.score), r.score / best, reasons(r))))];
  });
}

function showWhole() {
  const wanted = $("size").value === "" ? null : Math.round(Number($("size").value));
  fill("whole", () => ask("complete", { basket: state.basket, n: 4, size: wanted }), (answer) => [
    quiet(`Drawn from the model, exactly. Seed ${answer.seed}.`),
    make("div", { class: "drawn" }, ...answer.baskets.map((drawn, i) => {
      const held = new Set(drawn.items.filter((item) => !drawn.added.includes(item)));
      const words = drawn.items.flatMap((item, j) => [j ? ", " : "", make("bdi", held.has(item) ? { class: "held" } : {}, String(item))]);
      const take = () => change([...state.basket, ...drawn.added], `Basket taken over, ${items(drawn.items.length)}`);
      return make("div", { class: "card" }, make("p", {}, ...(words.length ? words : ["the empty basket"])),
        drawn.added.length ? make("button", { "aria-label": `Take over basket ${i + 1}`, onclick: take }, "Take over") : null);
    }))]);
}

function showRelated() {
  const item = state.focus;
  if (item === null) return $("related").replaceChildren(quiet("Put an item into the basket to see what it goes with and what stands in for it."));
  const query = new URLSearchParams([[typeof item === "number" ? "id" : "item", item], ["n", "8"]]);
  return fill("related", () => ask("related?" + query), (answer) => {
    const list = (rows, less, none) => rows.length
      ? make("ul", { class: "rows" }, ...rows.map((r) => row(r.other, times(r.lift), r.correlation / rows[0].correlation, null, less)))
      : quiet(none);
    return [make("p", { class: "quiet" }, make("b", {}, named(item)), ` is in ${percent(answer.probability)} of baskets. ×: how many times as often an item is bought where this one is.`),
      make("div", { class: "two" },
        make("div", {}, make("h3", {}, "Goes with"), list(answer.complements, false, "Nothing goes with it more than by chance.")),
        make("div", {}, make("h3", {}, "Stands in for it"), list(answer.substitutes, true, "Nothing stands in for it.")))];
  });
}

function showMap() {
  const names = state.map.items.map(({ item }) => item), probabilities = state.map.items.map(({ probability }) => probability);
  const width = Math.max(320, Math.min(1000, $("map").clientWidth)), height = Math.max(320, width / 2);
  const x = (i) => 30 + (width - 60) * state.map.items[i].x, y = (i) => 30 + (height - 50) * state.map.items[i].y;
  const held = new Set(state.basket), most = Math.max(...probabilities, 1e-12);
  const dots = names.map((item, i) => {
    const dot = drawing("circle", { cx: x(i), cy: y(i), r: 4 + 12 * Math.sqrt(probabilities[i] / most), class: held.has(item) ? "in" : "" },
      drawing("title", {}, `${item}, ${percent(probabilities[i])} of baskets`));
    dot.addEventListener("click", () => (held.has(item) ? remove(item) : add(item)));
    return dot;
  });
  const taken = [];
  const free = (i) => !taken.some((j) => Math.abs(x(i) - x(j)) < 140 && Math.abs(y(i) - y(j)) < 18) && taken.push(i);
  const order = names.map((_, i) => i).sort((i, j) => held.has(names[j]) - held.has(names[i]));
  const texts = order.filter((i) => held.has(names[i]) || free(i)).slice(0, 60).map((i) => drawing("text", {
    x: x(i), y: y(i) - 8 - 12 * Math.sqrt(probabilities[i] / most), "text-anchor": x(i) < 80 ? "start" : x(i) > width - 80 ? "end" : "middle",
    class: held.has(names[i]) ? "in-text" : "" }, String(names[i]).length > 24 ? String(names[i]).slice(0, 23) + "…" : String(names[i])));
  $("map").replaceChildren(drawing("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Map of the most popular items; search finds the same items" }, ...dots, ...texts));
}

function showMissions() {
  const found = state.model.missions.map((m) => make("li", {}, make("b", {}, percent(m.share)), " ", named(m.name), ": ",
    ...m.items.map(({ item }) => item).filter((item) => !m.name.includes(item)).slice(0, 5).flatMap((item, i) => [i ? ", " : "", named(item)])));
  $("missions").replaceChildren(...(found.length ? [make("h3", {}, "Missions of the model"), make("ul", { class: "facts" }, ...found.slice(0, 8))] : []));
}

// An item of the address that the model does not know is named, with what to do about it.
function showTrouble(problem) {
  const unknown = problem.label ?? problem.item;
  const swap = (other) => change(state.basket.map((item) => (item === unknown ? other : item)), `${unknown} replaced by ${other}`);
  const buttons = state.basket.includes(unknown) ? [
    ...(problem.suggestions ?? []).filter((other) => !state.basket.includes(other)).map((other) => make("button", { onclick: () => swap(other) }, "Replace by ", named(other))),
    make("button", { onclick: () => remove(unknown) }, "Remove it")] : [];
  const retry = problem.retry ? [make("button", { onclick: refresh }, "Try again")] : [];
  $("trouble").replaceChildren(make("div", {}, problem.detail), ...buttons, ...retry);
  $("trouble").hidden = false;
  for (const place of ["next", "whole", "related", "likely", "sizes"]) {
    state.asked[place] = (state.asked[place] ?? 0) + 1;
    $(place).replaceChildren();
  }
  $("sizes-text").textContent = "";
}

async function refresh() {
  const turn = ++state.turn;
  showBasket();
  try {
    if (!state.model?.size_distribution) state.model = await ask("model");
    const answer = await ask("probability", { basket: state.basket });
    if (turn !== state.turn) return;
    const m = state.model;
    $("about").textContent = `${m.n_items.toLocaleString("en")} items, ${m.mean_size.toFixed(1)} in a basket on average`;
    $("likely").replaceChildren(...likelihood(answer));
    showMissions();
    showNext(); showWhole(); showRelated();
    state.map ??= await ask("map");
    if (turn === state.turn) showMap();
  } catch (problem) {
    if (problem instanceof Error) throw problem;
    if (turn === state.turn) showTrouble(problem);
  }
}

// -- the search ----------------------------------------------------------------------------------------------------------------

const options = () => [...$("found").children];
const current = () => options().findIndex((option) => option.getAttribute("aria-selected") === "true");

function select(index) {
  options().forEach((option, i) => option.setAttribute("aria-selected", String(i === index)));
  const chosen = options()[index];
  if (chosen) { $("search").setAttribute("aria-activedescendant", chosen.id); chosen.scrollIntoView({ block: "nearest" }); }
  else $("search").removeAttribute("aria-activedescendant");
}

function close() {
  state.search += 1;
  $("found").hidden = true;
  $("found").replaceChildren();
  $("search").setAttribute("aria-expanded", "false");
  $("search").removeAttribute("aria-activedescendant");
}

async function search() {
  const turn = ++state.search;
  let answer;
  try {
    answer = await ask("items?" + new URLSearchParams({ q: $("search").value, limit: 12 }));
  } catch (problem) {
    return say(problem.detail ?? "");
  }
  if (turn !== state.search) return;
  const held = new Set(state.basket);
  const found = answer.items.filter(({ item }) => !held.has(item));
  $("found").replaceChildren(...found.map(({ item, probability }, i) => make("li", {
    role: "option", id: `option-${i}`, "aria-selected": "false", onmousedown: (event) => { event.preventDefault(); choose(item); } },
    named(item), make("span", {}, percent(probability)))));
  $("found").hidden = found.length === 0;
  $("search").setAttribute("aria-expanded", String(found.length > 0));
  say(found.length ? `${items(answer.total)} found` : "Nothing found");
  if ($("search").value && found.length) select(0);
}

function choose(item) {
  $("search").value = "";
  close();
  add(item);
}

const KEYS = {
  ArrowDown: () => ($("found").hidden ? search() : select(Math.min(current() + 1, options().length - 1))),
  ArrowUp: () => select(Math.max(current() - 1, 0)),
  Enter: () => options()[current()]?.dispatchEvent(new MouseEvent("mousedown", { cancelable: true })),
  Escape: close,
};

$("search").addEventListener("input", () => ($("search").value ? search() : close()));
$("search").addEventListener("blur", close);
$("search").addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  if (event.key === "Backspace" && !$("search").value && state.basket.length) remove(state.basket.at(-1));
  if (event.key in KEYS) { event.preventDefault(); KEYS[event.key](); }
});
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName);
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) { event.preventDefault(); $("search").focus(); }
});
$("clear").addEventListener("click", () => { change([], "The basket is empty"); $("search").focus(); });
$("share").addEventListener("click", async () => {
  try { await navigator.clipboard.writeText(location.href); say("Link copied"); $("share").textContent = "Copied"; }
  catch { say("The address of this page is the link"); $("share").textContent = "Copy the address"; }
  setTimeout(() => { $("share").textContent = "Copy link"; }, 2000);
});
$("ranking").addEventListener("change", showNext);
$("size").addEventListener("change", showWhole);
$("again").addEventListener("click", showWhole);
window.addEventListener("popstate", () => { read(); refresh(); });
read();
refresh();
