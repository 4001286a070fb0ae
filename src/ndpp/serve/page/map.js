// A map that can be read: dots by popularity, colours by mission, as many labels as fit without touching; it moves, zooms and centres.

import { $, bold, drawing, make, named, plain, say } from "./elements.js";
import { parts, shareOf, shown } from "./words.js";

const PAD = 36, FONT = 12.5, MAX_ZOOM = 12;
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const ruler = document.createElement("canvas").getContext("2d");

export class Atlas {
  constructor(places, missions, { held, toggle, link }) {
    Object.assign(this, { places, held, toggle, link, x: 0.5, y: 0.5, zoom: 1, chosen: null, lit: null });
    this.tones = new Map(missions.map((name, i) => [name, `m${i % 12}`]));
    this.most = Math.max(...places.map(({ probability }) => probability), 1e-12);
    this.svg = drawing("svg", { "aria-hidden": "true" });
    this.frame = make("div", { class: "frame", role: "group", tabindex: "0",
      "aria-label": "Map of the most popular items. Arrow keys move it, plus and minus zoom, Enter names the item in the middle; the search finds the same items." }, this.svg);
    this.panel = make("div", { class: "chosen" });
    const used = missions.filter((name) => places.some(({ mission }) => mission === name));
    this.legend = make("ul", { class: "legend", "aria-label": "Missions on the map" }, ...used.map((name) => make("li", {}, make("button",
      { "aria-pressed": "false", onclick: (event) => this.light(name, event.currentTarget) }, make("span", { class: `dot ${this.tones.get(name)}` }), plain(name)))));
    this.listen();
  }

  get elements() { return [this.frame, this.panel, this.legend]; }

  listen() {
    const down = new Map();  // where fingers, or the mouse, are
    let moved = false;
    const middle = (points) => ["x", "y"].map((axis) => points.reduce((sum, point) => sum + point[axis], 0) / points.length);
    const apart = ([a, b]) => (b ? Math.max(1, Math.hypot(a.x - b.x, a.y - b.y)) : 1);
    const place = (event) => ({ x: event.clientX, y: event.clientY });
    this.frame.addEventListener("pointerdown", (event) => {
      moved = down.size > 0;
      down.set(event.pointerId, place(event));
      if (moved) for (const id of down.keys()) this.frame.setPointerCapture(id);
    });
    this.frame.addEventListener("pointermove", (event) => {
      const from = down.get(event.pointerId), to = place(event), before = [...down.values()];
      if (!from || !event.buttons) { down.delete(event.pointerId); return; }
      if (!moved && Math.hypot(to.x - from.x, to.y - from.y) < 5) return;
      if (!moved) this.frame.setPointerCapture(event.pointerId);
      moved = true;
      down.set(event.pointerId, to);
      const after = [...down.values()];
      this.carry(middle(before), middle(after), apart(after) / apart(before));
    });
    const end = (event) => {
      const item = event.type === "pointerup" && down.has(event.pointerId) && !moved ? event.target.closest("[data-i]") : null;
      down.delete(event.pointerId);
      if (item) this.choose(Number(item.dataset.i));
    };
    for (const kind of ["pointerup", "pointercancel"]) this.frame.addEventListener(kind, end);
    // One finger moves the page, as long as the whole map is shown; two fingers always move the map.
    for (const kind of ["touchstart", "touchmove"]) {
      this.frame.addEventListener(kind, (event) => { if (event.touches.length > 1) event.preventDefault(); }, { passive: false });
    }
    this.frame.addEventListener("dblclick", (event) => this.closer(1.6, event));
    this.frame.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.closer(Math.exp(-event.deltaY / 200), event);
    }, { passive: false });
    const step = () => 0.12 / this.zoom;
    const KEYS = {
      ArrowLeft: () => this.look(this.x - step(), this.y), ArrowRight: () => this.look(this.x + step(), this.y),
      ArrowUp: () => this.look(this.x, this.y - step()), ArrowDown: () => this.look(this.x, this.y + step()),
      "+": () => this.closer(1.6), "=": () => this.closer(1.6), "-": () => this.closer(1 / 1.6), 0: () => this.whole(),
      Enter: () => this.choose(this.nearest()),
    };
    this.frame.addEventListener("keydown", (event) => {
      if (event.key in KEYS && !event.ctrlKey && !event.metaKey) { event.preventDefault(); KEYS[event.key](); }
    });
    new ResizeObserver(() => this.draw()).observe(this.frame);
  }

  nearest() {
    const far = this.places.map(({ x, y }) => Math.hypot((x - this.x) * this.across, (y - this.y) * this.down));
    return far.indexOf(Math.min(...far));
  }

  look(x, y, zoom = this.zoom) {
    this.zoom = Math.max(1, Math.min(MAX_ZOOM, zoom));
    [this.x, this.y] = [x, y].map((value) => (this.zoom === 1 ? 0.5 : Math.max(0, Math.min(1, value))));
    this.draw();
  }

  // Move what is at one place of the screen to another, and zoom by the factor.
  carry([fromX, fromY], [toX, toY], factor = 1) {
    const { left, top, width, height } = this.frame.getBoundingClientRect(), zoom = Math.max(1, Math.min(MAX_ZOOM, this.zoom * factor));
    const off = (at, start, length, unit, scale) => (at - start - length / 2) / unit / scale;
    this.turn = {};  // ends a movement under way
    this.look(this.x + off(fromX, left, width, this.across, this.zoom) - off(toX, left, width, this.across, zoom),
      this.y + off(fromY, top, height, this.down, this.zoom) - off(toY, top, height, this.down, zoom), zoom);
  }

  closer(factor, { clientX, clientY } = {}) {
    if (clientX === undefined) this.look(this.x, this.y, this.zoom * factor);
    else this.carry([clientX, clientY], [clientX, clientY], factor);
  }

  whole() { this.chosen = null; this.tell(); this.glide(0.5, 0.5, 1); }

  // Move there in a moment, or at once if motion is not wanted.
  glide(x, y, zoom) {
    const start = [this.x, this.y, this.zoom], steps = calm.matches ? 1 : 14, mine = this.turn = {};
    const step = (i) => {
      if (mine !== this.turn) return;
      const t = 1 - (1 - i / steps) ** 3, at = [x, y, zoom].map((end, k) => start[k] + t * (end - start[k]));
      this.look(...at);
      if (i < steps) requestAnimationFrame(() => step(i + 1));
    };
    step(1);
  }

  choose(i) {
    this.chosen = i;
    const { item, probability, x, y } = this.places[i];
    say(`${shown(item)}, in ${shareOf(probability, "baskets").join("")}`);
    this.tell();
    this.glide(x, y, Math.max(this.zoom, 2.2));
  }

  light(name, button) {
    this.lit = this.lit === name ? null : name;
    for (const other of this.legend.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button && this.lit === name));
    this.draw();
  }

  // What is chosen, in words, and what can be done with it.
  tell() {
    if (this.chosen === null) return this.panel.replaceChildren();
    const { item, probability, mission } = this.places[this.chosen], [part, rest] = shareOf(probability, "baskets");
    const held = this.held().includes(item);
    return this.panel.replaceChildren(make("p", {}, make("a", { href: this.link(item) }, named(item)), " is in ", bold(part), rest,
      ...(mission === null ? ["."] : [", most often on the mission ", make("span", { class: `dot ${this.tones.get(mission)}` }), plain(mission), "."])),
      make("button", { onclick: () => this.toggle(item) }, held ? "Remove" : "Add"));
  }

  draw() {
    const width = this.frame.clientWidth;
    if (!width) return;
    const height = Math.round(Math.max(440, Math.min(640, width * 0.62)));
    [this.across, this.down] = [width - 2 * PAD, height - 2 * PAD];
    const held = new Set(this.held());
    const dots = this.places.map((place, i) => ({ ...place, i, isHeld: held.has(place.item), isChosen: i === this.chosen,
      cx: width / 2 + (place.x - this.x) * this.across * this.zoom, cy: height / 2 + (place.y - this.y) * this.down * this.zoom,
      r: (3 + 10 * Math.sqrt(place.probability / this.most)) * Math.min(1.4, Math.sqrt(this.zoom)) * (width < 600 ? 0.6 : 1) }))
      .filter(({ cx, cy }) => cx > -20 && cx < width + 20 && cy > -20 && cy < height + 20);
    const dim = ({ mission, isHeld, isChosen }) => this.lit !== null && mission !== this.lit && !isHeld && !isChosen;
    const circles = dots.map((dot) => drawing("circle", { cx: dot.cx.toFixed(1), cy: dot.cy.toFixed(1), r: dot.r.toFixed(1), "data-i": dot.i,
      class: [this.tones.get(dot.mission) ?? "plain-dot", dot.isHeld ? "in" : "", dot.isChosen ? "centre" : "", dim(dot) ? "dim" : ""].join(" ") },
      drawing("title", {}, `${shown(dot.item)}, in ${shareOf(dot.probability, "baskets").join("")}`)));
    const texts = this.labels(dots.filter((dot) => !dim(dot)), width, height, dots);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...circles, ...texts);
    this.frame.classList.toggle("zoomed", this.zoom > 1);
  }

  // Labels of the chosen item, of the basket and then of popular items, each where it touches no other label and no other dot.
  labels(wanted, width, height, dots) {
    const family = getComputedStyle(this.frame).fontFamily, taken = [];
    const meets = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    const boxes = dots.map(({ cx, cy, r, i }) => ({ i, left: cx - 0.8 * r, right: cx + 0.8 * r, top: cy - 0.8 * r, bottom: cy + 0.8 * r }));
    const first = [...wanted].sort((a, b) => b.isChosen - a.isChosen || b.isHeld - a.isHeld || b.probability - a.probability);
    return first.flatMap(({ item, cx, cy, r, i, isHeld, isChosen }) => {
      const [, name] = parts(item), most = width < 600 ? 18 : 26, text = name.length > most && !isChosen ? name.slice(0, most - 1).trim() + "…" : name, strong = isHeld || isChosen;
      ruler.font = `${strong ? 600 : 400} ${FONT}px ${family}`;
      const w = ruler.measureText(text).width + 4, h = FONT + 3;
      const places = [[cx - w / 2, cy - r - 2 - h], [cx - w / 2, cy + r + 2], [cx + r + 3, cy - h / 2], [cx - r - 3 - w, cy - h / 2]]
        .map(([left, top]) => ({ left, top, right: left + w, bottom: top + h }))
        .filter((box) => box.left >= 0 && box.right <= width && box.top >= 0 && box.bottom <= height && !taken.some((other) => meets(box, other)));
      const at = places.find((box) => !boxes.some((other) => other.i !== i && meets(box, other))) ?? (strong ? places[0] : undefined);
      if (!at) return [];
      taken.push(at);
      return [drawing("text", { x: (at.left + 2).toFixed(1), y: (at.bottom - 4).toFixed(1), class: strong ? "in-text" : "" }, text)];
    });
  }
}

export const buttons = (atlas) => {
  $("closer").onclick = () => atlas.closer(1.6);
  $("wider").onclick = () => atlas.closer(1 / 1.6);
  $("all").onclick = () => atlas.whole();
};
