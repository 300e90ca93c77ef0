// Requests to the service. One that the service is too busy for, or that does not reach it, is sent again.

const UNREACHABLE_RETRY_SECONDS = 5;
const MAX_BUSY_TRIES = 5; // a busy service can be one that will never accept this request

// An error response of the service.
export class ServiceError extends Error {}

// Send a request, with retries, and return the parsed response. While it waits for the next try,
// `onWait(reason, seconds)` is called every second with the seconds left.
export async function requestJson(address, { body, key, signal, onWait }) {
  const headers = new Headers(body && { "Content-Type": "application/json" });
  if (key) headers.set("Authorization", `Bearer ${key}`);
  const options = { method: body ? "POST" : "GET", body: body && JSON.stringify(body), headers, signal };
  for (let tries = 1; ; tries += 1) {
    const { data, error, retryAfter } = await requestOnce(address, options);
    signal.throwIfAborted();
    if (data) return data;
    if (!retryAfter || (error && tries >= MAX_BUSY_TRIES)) throw new ServiceError(asSentence(error));
    const reason = error ? "The service is busy" : "The service does not answer";
    for (let left = retryAfter; left > 0; left -= 1) {
      onWait(reason, left);
      await pause(1000, signal);
    }
  }
}

// The parsed response as `data`, or the `error` and the seconds after which to try again (0: do not).
async function requestOnce(address, options) {
  let response, text;
  try {
    response = await fetch(address, options);
    text = await response.text();
  } catch {
    return { retryAfter: UNREACHABLE_RETRY_SECONDS };
  }
  const data = parseJson(text);
  if (response.ok && data) return { data };
  const busy = response.status === 429 || response.status === 503;
  const retryAfter = busy ? Number(response.headers.get("Retry-After")) || 1 : 0;
  return { error: data?.error ?? `the service answered with HTTP status ${response.status}`, retryAfter };
}

function parseJson(text) {
  try { return JSON.parse(text); } catch { return undefined; }
}

// Beginning a request cancels the one before, so that a late response never replaces a newer one.
export class LatestRequest {
  #controller = new AbortController();

  begin() {
    this.cancel();
    this.#controller = new AbortController();
    return this.#controller.signal;
  }

  cancel() { this.#controller.abort(); }
}

export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
  });
}

const asSentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
