// The panel "Load": plots of the server's last three minutes, from its own samples.

import { $ } from "./dom.js";
import { call } from "./server.js";

/** As wide as the drawing. */
const SAMPLES = 90;
const PLOTS = [
  { title: "Requests running, and waiting (dashed)", name: "running", unit: "", second: "waiting" },
  { title: "Generated tokens per second", name: "speed", unit: "" },
  { title: "Prompt tokens from the cache", name: "cache", unit: " %" },
  { title: "Milliseconds to the first token", name: "first", unit: " ms" },
];

export async function sampleLoad() {
  if ($("panel-load").hidden || document.hidden) return;
  try {
    const { data } = await (await call("/load")).json();
    $("load-note").textContent = "The last three minutes of this server, every two seconds.";
    $("load-note").classList.remove("error");
    const values = valuesOf(data);
    for (const plot of PLOTS) draw(plot, values);
  } catch (error) {
    $("load-note").textContent = error.message;
    $("load-note").classList.add("error");
  }
}

/** The values of each plot. The counters only grow, so their changes are plotted. */
function valuesOf(samples) {
  const change = (name) =>
    samples.slice(1).map((sample, index) => sample[name] - samples[index][name]);
  const share = (part, whole, factor) => {
    const parts = change(part), wholes = change(whole);
    return parts.map((count, index) => wholes[index] > 0 ? factor * count / wholes[index] : null);
  };
  const seconds = change("time");
  return {
    running: samples.map(({ running }) => running),
    waiting: samples.map(({ waiting }) => waiting),
    speed: change("completion_tokens").map((count, index) => count / Math.max(1, seconds[index])),
    cache: share("cached_tokens", "prompt_tokens", 100),
    first: share("first_token_seconds", "first_tokens", 1000),
  };
}

/** A value of null continues the last one. */
function draw({ title, name, unit, second }, values) {
  const held = (all = []) => all.reduce((line, value) => [...line, value ?? line.at(-1) ?? 0], []);
  const lines = [held(values[name]), held(values[second])];
  const most = Math.max(1, ...lines.flat());
  const now = lines[0].at(-1) ?? 0;
  const text = `${now.toFixed(now < 10 && now % 1 ? 1 : 0)}${unit}`;
  const figure = document.querySelector(`[data-name=${name}]`) ?? newFigure(title, name);
  figure.querySelector("b").textContent = text;
  const label = `${title}: now ${text}, at most ${most.toFixed(0)}${unit}`;
  figure.querySelector("svg").setAttribute("aria-label", label);
  for (const [index, path] of [...figure.querySelectorAll("path")].entries()) {
    const start = SAMPLES - lines[index].length;
    const points = lines[index].map((value, place) =>
      `${start + place} ${(38 - 36 * value / most).toFixed(2)}`);
    path.setAttribute("d", points.length ? "M" + points.join("L") : "");
  }
}

function newFigure(title, name) {
  const figure = $("plot").content.firstElementChild.cloneNode(true);
  figure.querySelector("span").textContent = title;
  figure.dataset.name = name;
  $("plots").append(figure);
  return figure;
}

export function startLoad() {
  setInterval(sampleLoad, 2000);
}
