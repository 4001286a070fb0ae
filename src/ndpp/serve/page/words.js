// Numbers in the words of people who buy and sell.

const round = (x) => Number(x.toPrecision(2)).toLocaleString("en");

export const items = (n) => (n === 1 ? "1 item" : `${n.toLocaleString("en")} items`);
export const average = (x) => (x < 9.95 ? x.toFixed(1) : Math.round(x).toLocaleString("en"));

export const median = (law) => {
  let total = 0;
  return law.findIndex((p) => (total += p) >= 0.5);
};

// "42 %", and "1 in 240" of what is rare.
export function share(p) {
  if (p >= 0.9995) return "100 %";
  if (p >= 0.0995) return `${Math.min(99, Math.round(100 * p))} %`;
  if (p >= 0.01) return `${(100 * p).toFixed(1)} %`;
  return p >= 1e-6 ? `1 in ${round(1 / p)}` : p > 0 ? "fewer than 1 in a million" : "none";
}

// "42 % of such baskets", "1 of 240 such baskets".
export const shareOf = (p, baskets) => (p >= 0.01 ? [share(p), ` of ${baskets}`]
  : p >= 1e-6 ? [`1 of ${round(1 / p)}`, ` ${baskets}`] : ["hardly any", ` of ${baskets}`]);

// How often, compared with something: "12 times as often as", "30 % less often than".
export function often(x) {
  if (x >= 1000) return "over 1,000 times as often as";
  if (x >= 1.95) return x < 2.05 ? "twice as often as" : `${x < 9.95 ? Number(x.toFixed(1)) : Math.round(x)} times as often as`;
  if (x > 1.05) return `${Math.round(100 * (x - 1))} % more often than`;
  if (x >= 0.95) return "about as often as";
  return x >= 0.01 ? `${Math.min(99, Math.round(100 * (1 - x)))} % less often than` : "hardly ever, compared with";
}

// The names of items, by label, that answers have told. What has no name is read by its label.
const names = new Map();
export const pictures = new Map();

// Learn the names and the pictures of an answer; return what is new.
export const learn = (answer) => [[names, answer.names], [pictures, answer.pictures]].flatMap(([known, told = {}]) =>
  Object.entries(told).filter(([label, text]) => known.get(label) !== text && known.set(label, text)));

const CODE = /^(\d{4,}\S*)\s+(?=\S)/;

// A text in capitals shouts: "85123A WHITE T-LIGHT HOLDER" reads "85123A White t-light holder". Its code stays as it is.
export function readable(text) {
  const label = String(text), words = label.match(/\p{L}{3,}/gu) ?? [], loud = words.filter((word) => !/\p{Ll}/u.test(word) && /\p{Lu}/u.test(word));
  if (2 * loud.length <= words.length || (words.length < 2 && label.length < 5)) return label;
  const lower = label.split(" ").map((word) => (/^\d{4}/.test(word) ? word : word.toLowerCase())).join(" ");
  return lower.replace(/(?<=^|\s)\p{Ll}/u, (letter) => letter.toUpperCase());
}

// What an item is called.
export const shown = (item) => readable(names.get(String(item)) ?? item);

// An item in two parts, its code and its name: the label and the name that goes with it, or the code that the label begins with, and the rest.
export const hasName = (item) => names.has(String(item));
export function parts(item) {
  if (hasName(item)) return [String(item), shown(item)];
  const label = shown(item), code = CODE.exec(label);
  return code ? [code[1], label.slice(code[0].length)] : ["", label];
}
