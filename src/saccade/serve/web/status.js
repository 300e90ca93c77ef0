// What the page says about its work: shown below the translation, and read out.

const shown = document.getElementById("status");
const heard = document.getElementById("aloud");

export function tell(text, { wrong = false, aloud = text } = {}) {
  shown.textContent = text;
  shown.classList.toggle("wrong", wrong);
  heard.textContent = aloud;
}

// It is counted down for the eye, and read out once.
export function tellWaiting(why, left) {
  const text = `${why}, trying again in ${left} s.`;
  tell(text, { wrong: true, aloud: heard.textContent.startsWith(why) ? heard.textContent : text });
}
