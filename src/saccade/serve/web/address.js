// What the page's address holds: the choice, and the text if someone asks. All is in the fragment, which is never sent.

const KEYS = ["source", "target", "model", "attention", "text"];

export function stateInAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(KEYS.filter((key) => asked.has(key)).map((key) => [key, asked.get(key)]));
}

export function keepInAddress(state) {
  const told = KEYS.filter((key) => state[key]).map((key) => [key, state[key]]);
  history.replaceState(null, "", `#${new URLSearchParams(told)}`);
}
