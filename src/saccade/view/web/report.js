// The report: its charts are drawn already, and tell their values where a pointer stands. The viewer shows the samples.
import { attentionView } from "./attention.js";
import { make, makeSvg } from "./dom.js";

const numbersOf = (text) => text.split(" ").map(Number);
const placeOn = ([low, high, start, end], value) => start + ((value - low) / (high - low)) * (end - start);
const valueOf = (text) => (text === "" ? undefined : Number(text.replaceAll(",", "")));

// A chart's own table says what its values are.
function rowsOf(figure) {
  return [...figure.querySelectorAll("tbody tr")].map((row) => {
    const [step, ...values] = [...row.cells].map((cell) => cell.textContent);
    return { step, values, at: valueOf(step) };
  });
}

function tellValues(figure) {
  const svg = figure.querySelector("svg");
  const [across, up] = [numbersOf(svg.dataset.across), numbersOf(svg.dataset.up)];
  const names = [...figure.querySelectorAll("thead th")].slice(1).map((head) => head.textContent);
  const rows = rowsOf(figure);
  const told = make("p", { className: "told" });
  const guide = makeSvg("g", { class: "guide" });
  // Before the drawing, so that the browser does not show the chart's title to those who look for a value.
  const area = make("div", { className: "area" });
  svg.append(guide);
  svg.parentElement.append(area, told);

  const rest = () => { guide.replaceChildren(); told.replaceChildren(); };
  const point = (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const away = (row) => Math.abs(placeOn(across, row.at) - x);
    const row = rows.reduce((nearest, each) => (away(each) < away(nearest) ? each : nearest));
    const shown = row.values.map((text, index) => ({ text, index })).filter(({ text }) => text !== "");
    const at = placeOn(across, row.at);
    guide.replaceChildren(
      makeSvg("line", { x1: at, x2: at, y1: up[3], y2: up[2] }),
      ...shown.map(({ text, index }) =>
        makeSvg("circle", { class: `dot s${index + 1}`, cx: at, cy: placeOn(up, valueOf(text)), r: 4 })));
    told.replaceChildren(
      make("span", {}, `update ${row.step}`),
      ...shown.map(({ text, index }) => make("span", {}, `${names[index]} `, make("b", {}, text))));
  };
  area.addEventListener("pointermove", point);
  area.addEventListener("pointerdown", point);
  area.addEventListener("pointerleave", rest);
}

for (const svg of document.querySelectorAll(".chart svg[data-across]")) tellValues(svg.closest(".chart"));

const home = document.getElementById("view");
if (home) attentionView(home, JSON.parse(document.getElementById("data").textContent), { address: false });
