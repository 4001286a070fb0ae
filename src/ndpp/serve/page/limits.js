// Limits: bounds on the number of items of a category, or on a total of values, from the server's table.

import { $, make, plain } from "./elements.js";
import { model } from "./basket.js";
import { readable } from "./words.js";

const limits = new Map();

// The limits as the service reads them. Recommendations keep the upper ones.
export const inWords = (upper = false) => [...limits].flatMap(([word, { least, most }]) => {
  const low = upper ? "" : least.value, high = most.value;
  return low && high ? `${word}=${low}..${high}` : high ? `${word}<=${high}` : low ? `${word}>=${low}` : [];
});

function tell() {
  const n = inWords().length;
  $("limits-title").textContent = n ? `Limits (${n})` : "Limits";
}

function add(word, name, isTotal, changed) {
  const field = (bound) => make("input", { type: "number", min: 0, step: isTotal ? "any" : 1, inputmode: isTotal ? "decimal" : "numeric", placeholder: "any",
    "aria-label": `${readable(name)}${isTotal ? " in total" : ""}, ${bound}` });
  const least = field("at least"), most = field("at most");
  const drop = make("button", { class: "plain", "aria-label": `Remove the limit on ${readable(name)}`, onclick: () => {
    const wasSet = least.value || most.value;
    limits.delete(word);
    line.remove();
    $("limit-names").focus();
    if (wasSet) { tell(); changed(); }
  } }, "✕");
  const line = make("li", {}, make("span", {}, plain(name), isTotal ? " in total" : ""), least, most, isTotal ? make("span") : drop);
  line.addEventListener("change", () => { tell(); changed(); });
  limits.set(word, { least, most });
  $("limits-list").append(line);
  return least;
}

// Offer what the table of the server has: a line for each column of numbers, and one for each category that is chosen.
export async function offerLimits(changed) {
  const { columns } = await model();
  if (!columns.length || !$("limits").hidden) return;
  $("limits").hidden = false;
  for (const { name, values } of columns) {
    if (values === null) add(name, name, true, changed);
    else $("limit-names").append(make("optgroup", { label: name }, ...values.map((value) => make("option", { value: `${name}:${value}` }, readable(value)))));
  }
  $("limit-choice").hidden = !$("limit-names").options.length;
  $("limit-add").addEventListener("click", () => {
    const word = $("limit-names").value, known = limits.get(word);
    const column = $("limit-names").selectedOptions[0].parentElement.label;
    (known?.least ?? add(word, word.slice(column.length + 1), false, changed)).focus();
  });
}
