// The API key, kept for as long as the tab is open. A browser that keeps nothing for anyone still translates.

const NAME = "saccade-key";

export function keptKey() {
  try { return sessionStorage.getItem(NAME) ?? ""; } catch { return ""; }
}

export function keepKey(key) {
  try { sessionStorage.setItem(NAME, key); } catch {}
}
