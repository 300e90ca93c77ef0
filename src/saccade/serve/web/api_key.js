// The API key, stored for as long as the tab is open. Where the browser blocks storage it is not stored.

const NAME = "saccade-key";

export function storedKey() {
  try { return sessionStorage.getItem(NAME) ?? ""; } catch { return ""; }
}

export function storeKey(key) {
  try { sessionStorage.setItem(NAME, key); } catch {}
}
