// The customer: an id that stays in this tab, and goes to the service in the body of a question, never into an address.

import { $, make, say } from "./elements.js";
import { model } from "./basket.js";
import { share } from "./words.js";

const KEY = "ndpp-customer";
const KINDS = { known: "Known here. What they have bought before is marked.", new: "New here: gets what everybody gets." };

// What a question says about whose basket it is.
export const whose = () => ($("who").hidden || !$("customer").value.trim() ? {} : { customer: $("customer").value.trim() });
export const isNamed = () => "customer" in whose();

// Say whether the service knows the customer, unless the answer is about another one, who was named before.
export const tell = (answer, { customer } = whose()) => { if (customer === whose().customer) $("who-said").textContent = KINDS[answer?.customer] ?? ""; };
export const boughtBefore = ({ usual = 0 }) => (usual > 0 ? make("p", { class: "own" }, `bought before: ${share(Math.min(1, usual))} of baskets`) : null);

// Offer the field if the service has customers; what was typed in this tab before is still there.
export async function offerCustomer(changed) {
  const { customers } = await model();
  if (customers === null || !$("who").hidden) return;
  $("who").hidden = false;
  $("customer").value = sessionStorage.getItem(KEY) ?? "";
  $("customer").addEventListener("change", () => {
    sessionStorage.setItem(KEY, $("customer").value.trim());
    tell(null);
    say(isNamed() ? "Recommendations for this customer" : "Recommendations for anyone");
    changed();
  });
  if (isNamed()) changed();
}
