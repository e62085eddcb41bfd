"use strict";

/* Frame: the menu of small screens, copying, the switch of the theme */
document.addEventListener("click", (event) => {
  const toggle = event.target.closest("[data-toggle]");
  if (toggle) {
    const open = document.getElementById(toggle.dataset.toggle).classList.toggle("open");
    toggle.setAttribute("aria-expanded", String(open));
  }
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    const text = document.getElementById(copy.dataset.copy).textContent;
    navigator.clipboard.writeText(text).then(() => {
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    });
  }
});

const themeSwitch = document.querySelector("[data-theme-switch]");
if (themeSwitch && !document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches) {
  themeSwitch.value = "light";
  themeSwitch.textContent = "Light";
}

/* What is open or has the focus is not replaced by news of the same. */
document.addEventListener("htmx:beforeSwap", (event) => {
  const target = event.detail.target;
  if (target.querySelector("details[open]") || (document.activeElement !== target && target.contains(document.activeElement))) {
    event.detail.shouldSwap = false;
  }
});
document.addEventListener("htmx:beforeRequest", (event) => {
  if (document.hidden) event.preventDefault();
});

/* Charts: <div class="chart" data-chart='{"times": [...], "series": [{"label", "values"}]}'> */
function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
function draw(element) {
  const about = JSON.parse(element.dataset.chart);
  const colors = [color("--accent"), color("--warn"), color("--bad")];
  const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: "11px system-ui" };
  const options = {
    width: element.clientWidth, height: 170, cursor: { drag: { x: false, y: false } }, legend: { live: true },
    axes: [{ ...axis }, { ...axis, size: 56, values: (u, splits) => splits.map((v) => v.toLocaleString()) }],
    scales: { y: { range: (u, low, high) => [0, Math.max(high * 1.08, about.least || 1)] } },
    series: [{}, ...about.series.map((one, i) => ({ label: one.label, stroke: colors[i], width: 1.5, fill: i ? undefined : colors[0] + "18", points: { show: about.times.length < 3 } }))],
  };
  const chart = new uPlot(options, [about.times, ...about.series.map((one) => one.values)], element);
  new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: 170 })).observe(element);
}
window.addEventListener("load", () => {
  if (window.uPlot) document.querySelectorAll("[data-chart]").forEach(draw);
});
