// The status line below the translation, and the live region that screen readers announce.

const statusLine = document.getElementById("status");
const liveRegion = document.getElementById("announcement");

export function showStatus(text, { isError = false, announce = text } = {}) {
  statusLine.textContent = text;
  statusLine.classList.toggle("error", isError);
  liveRegion.textContent = announce;
}

// Show a countdown. Screen readers announce only its first number.
export function showRetry(reason, left) {
  const text = `${reason}, trying again in ${left} s.`;
  const announced = liveRegion.textContent;
  showStatus(text, { isError: true, announce: announced.startsWith(reason) ? announced : text });
}
