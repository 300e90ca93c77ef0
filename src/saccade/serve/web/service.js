// Talking to the service. While it is busy or out of reach it is asked again, until someone cancels.

const UNREACHABLE = 5; // seconds until the next try when nobody answers
const TRIES = 5; // at a busy service; some requests it can never serve

// What the service says instead of an answer.
export class BuildError extends Error {}

// The parsed answer. `waiting(why, seconds)` is told, second by second, that it is going to be asked again.
export async function asked(address, { body, key, signal, waiting }) {
  const headers = new Headers(body && { "Content-Type": "application/json" });
  if (key) headers.set("Authorization", `Bearer ${key}`);
  const options = { method: body ? "POST" : "GET", body: body && JSON.stringify(body), headers, signal };
  for (let tries = 1; ; tries += 1) {
    const { answer, error, again } = await askedOnce(address, options);
    signal.throwIfAborted();
    if (answer) return answer;
    if (!again || (error && tries >= TRIES)) throw new BuildError(asSentence(error));
    const why = error ? "The service is busy" : "The service does not answer";
    for (let left = again; left > 0; left -= 1) {
      waiting(why, left);
      await pause(1000, signal);
    }
  }
}

async function askedOnce(address, options) {
  let response, text;
  try {
    response = await fetch(address, options);
    text = await response.text();
  } catch {
    return { again: UNREACHABLE };
  }
  const answer = parsed(text);
  if (response.ok && answer) return { answer };
  const busy = response.status === 429 || response.status === 503;
  const again = busy ? Number(response.headers.get("Retry-After")) || 1 : 0;
  return { error: answer?.error ?? `the service answered ${response.status}`, again };
}

function parsed(text) {
  try { return JSON.parse(text); } catch { return undefined; }
}

// What begins cancels what was begun before, so that a late answer can never take the place of a newer one.
export class Latest {
  #running = new AbortController();

  begin() {
    this.cancel();
    this.#running = new AbortController();
    return this.#running.signal;
  }

  cancel() { this.#running.abort(); }
}

export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
  });
}

const asSentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
