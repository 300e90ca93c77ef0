// The state of the page in its URL: the selection, and the text if the user asks for a link. It is all in the fragment,
// which browsers never send to a server.

const KEYS = ["source", "target", "model", "attention", "text"];

export function readState() {
  const params = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(KEYS.filter((key) => params.has(key)).map((key) => [key, params.get(key)]));
}

export function writeState(state) {
  const params = KEYS.filter((key) => state[key]).map((key) => [key, state[key]]);
  history.replaceState(null, "", `#${new URLSearchParams(params)}`);
}
