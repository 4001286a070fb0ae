// The context: when and where baskets are bought. What is chosen goes with every question that takes it, and stays in this tab.

import { $, always, make, say } from "./elements.js";
import { model } from "./basket.js";

const KEY = "ndpp-context";

export const isChosen = () => "context" in always;

function choose(known) {
  const chosen = Object.entries(known).filter(([, value]) => value !== "");
  if (chosen.length) always.context = Object.fromEntries(chosen); else delete always.context;
  return chosen;
}

// Offer a list for each column of context, if the model has any; what was chosen in this tab before, and is still known, is chosen again.
export async function offerContext(changed) {
  const { context } = await model();
  if (!Object.keys(context).length || !$("where").hidden) return;
  const before = JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
  const fields = Object.entries(context).map(([name, values], i) => {
    const list = make("select", { id: `context-${i}` }, make("option", { value: "" }, "any"), ...values.map((value) => make("option", { value }, value)));
    list.value = values.includes(before[name]) ? before[name] : "";
    $("where").append(make("label", { for: list.id }, name), list);
    return [name, list];
  });
  const known = () => Object.fromEntries(fields.map(([name, list]) => [name, list.value]));
  $("where").hidden = false;
  $("where").addEventListener("change", () => {
    sessionStorage.setItem(KEY, JSON.stringify(known()));
    const chosen = choose(known());
    say(chosen.length ? `Baskets where ${chosen.map(([name, value]) => `${name} is ${value}`).join(" and ")}` : "All baskets");
    changed();
  });
  if (choose(known()).length) changed();
}
