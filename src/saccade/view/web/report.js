// The report: shows the values of its charts at the pointer, and the attention viewer.
import { attentionView } from "./attention.js";
import { make, makeSvg } from "./dom.js";

const numbersOf = (text) => text.split(" ").map(Number);
const coordinate = ([low, high, start, end], value) => start + ((value - low) / (high - low)) * (end - start);
const valueOf = (text) => (text === "" ? undefined : Number(text.replaceAll(",", "")));

// The values are read from the table of the chart.
function tableRows(figure) {
  return [...figure.querySelectorAll("tbody tr")].map((row) => {
    const [step, ...values] = [...row.cells].map((cell) => cell.textContent);
    return { step, values, update: valueOf(step) };
  });
}

function showValuesAtPointer(figure) {
  const svg = figure.querySelector("svg");
  const [xScale, yScale] = [numbersOf(svg.dataset.xScale), numbersOf(svg.dataset.yScale)];
  const names = [...figure.querySelectorAll("thead th")].slice(1).map((header) => header.textContent);
  const rows = tableRows(figure);
  const tooltip = make("p", { className: "tooltip" });
  const guide = makeSvg("g", { class: "guide" });
  // Covers the drawing, so that the browser does not show the title of the SVG as a tooltip.
  const area = make("div", { className: "area" });
  svg.append(guide);
  svg.parentElement.append(area, tooltip);

  const clear = () => { guide.replaceChildren(); tooltip.replaceChildren(); };
  const point = (event) => {
    const box = svg.getBoundingClientRect();
    const pointerX = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const distance = (row) => Math.abs(coordinate(xScale, row.update) - pointerX);
    const row = rows.reduce((nearest, other) => (distance(other) < distance(nearest) ? other : nearest));
    const values = row.values.map((text, index) => ({ text, index })).filter(({ text }) => text !== "");
    const x = coordinate(xScale, row.update);
    guide.replaceChildren(
      makeSvg("line", { x1: x, x2: x, y1: yScale[3], y2: yScale[2] }),
      ...values.map(({ text, index }) =>
        makeSvg("circle", { class: `dot s${index + 1}`, cx: x, cy: coordinate(yScale, valueOf(text)), r: 4 })));
    tooltip.replaceChildren(
      make("span", {}, `update ${row.step}`),
      ...values.map(({ text, index }) => make("span", {}, `${names[index]} `, make("b", {}, text))));
  };
  area.addEventListener("pointermove", point);
  area.addEventListener("pointerdown", point);
  area.addEventListener("pointerleave", clear);
}

for (const svg of document.querySelectorAll(".chart svg[data-x-scale]")) showValuesAtPointer(svg.closest(".chart"));

const view = document.getElementById("view");
if (view) attentionView(view, JSON.parse(document.getElementById("data").textContent), { storeInUrl: false });
