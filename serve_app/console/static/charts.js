"use strict";

/* Charts: <div class="chart" data-chart='{"times": [...], "series": [{"label": "", "values": [...]}]}'>.
   Times are the starts of periods of equal length, in Unix seconds. Series are stacked as bars, or are lines with
   "as": "lines". A series with "is_error": true is red. "unit" follows each number. */
function styleOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function stacked(series) {
  const sums = series[0].values.map(() => 0);
  return series.toReversed().map((one) => one.values.map((value, i) => { sums[i] += value; return sums[i]; })).toReversed();
}

function draw(element) {
  const { times, series, unit = "", as = "bars" } = JSON.parse(element.dataset.chart);
  const isBars = as === "bars";
  const step = times.length > 1 ? times[1] - times[0] : 60;
  const end = times.at(-1) + (isBars ? step : 0);
  const show = (value) => value === null ? "–" : value.toLocaleString("en-US", value < 10 ? { maximumSignificantDigits: 4 } : { maximumFractionDigits: 0 }) + (unit && ` ${unit}`);
  const utc = (at) => new Date(at * 1000).toISOString();
  const isLong = end - times[0] > 2 * 86400;
  const tick = (at) => isLong ? utc(at).slice(5, 10) : utc(at).slice(11, 16);
  const drawn = isBars ? stacked(series) : series.map((one) => one.values);
  let next = 1;
  const lines = series.map((one) => {
    const stroke = styleOf(one.is_error ? "--bad" : `--series-${next++}`);
    const known = one.values.filter((value) => value !== null);
    const resting = isBars ? known.reduce((sum, value) => sum + value, 0) : known.at(-1) ?? null;
    return {
      label: one.label, stroke, width: isBars ? 0 : 1.5, fill: isBars ? stroke : undefined, spanGaps: true,
      paths: isBars ? uPlot.paths.bars({ size: [0.72, 48], align: 1 }) : undefined,
      points: { show: !isBars && known.length < 3 },
      value: (u, value, i, at) => show(at === null ? resting : one.values[at]),
    };
  });
  const axis = { stroke: styleOf("--muted"), grid: { stroke: styleOf("--line"), width: 1 }, ticks: { stroke: styleOf("--line"), width: 1 }, font: "11px system-ui" };
  const size = () => ({ width: element.clientWidth, height: 180 });
  const chart = new uPlot({
    ...size(),
    cursor: {
      drag: { x: false, y: false }, points: { show: !isBars },
      dataIdx: (u, i, closest, at) => isBars && closest > 0 && times[closest] > at ? closest - 1 : closest,
    },
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
    axes: [
      { ...axis, values: (u, splits) => splits.map(tick) },
      { ...axis, size: (u, labels) => 18 + 7 * Math.max(3, ...(labels || []).map((one) => one.length)), values: (u, splits) => splits.map(show) },
    ],
    scales: { x: { range: [times[0], Math.max(end, times[0] + step)] }, y: { range: (u, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
    series: [{ label: "Shown", value: (u, at) => at === null ? (isBars ? "total" : "latest") : `${utc(at).slice(0, 16).replace("T", " ")} UTC` }, ...lines],
  }, [times, ...drawn], element);
  new ResizeObserver(() => chart.setSize(size())).observe(element);
}

function drawNew() {
  document.querySelectorAll("[data-chart]:empty").forEach(draw);
}
document.addEventListener("htmx:afterSettle", drawNew);
window.addEventListener("load", drawNew);
