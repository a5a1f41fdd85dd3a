// Draws the charts of a page. Each stands in the page as JSON beside the place it is drawn in:
//
//   {x, y: {label, unit, log, min, max, categories}, xs, series: [{name, form, colour, soft, x, y}],
//    marks: [{at, label, limit}], stacked, sync}
//
// All series share `xs`, or each has its own `x`. Forms: `step` (a value holds until the next x), `area` (the
// same, filled), `line`, `points`, `bars`. With `stacked`, series stand on top of each other, the first below.
"use strict";

(() => {
  const root = document.documentElement;
  root.dataset.drawn = 0;
  root.dataset.errors = 0;

  // Whatever goes wrong is there to be read, on the page too.
  const fail = (what) => {
    root.dataset.errors = Number(root.dataset.errors) + 1;
    document.getElementById("errors").append(String(what), "\n");
  };
  window.addEventListener("error", (event) => fail(event.message));
  window.addEventListener("unhandledrejection", (event) => fail(event.reason));

  const HEIGHT = 280;
  const HEIGHT_PRINTED = 200;
  const FONT = "12px system-ui, sans-serif";
  const MARK_ROWS = 3;
  const MARK_ROW_HEIGHT = 14;

  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  const plain = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });
  const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
  const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 4 });

  // A figure in a legend, and one at a tick.
  const figure = (value) => (Math.abs(value) < 1000 ? plain : whole).format(value);
  const tick = (value) => (Math.abs(value) < 10000 ? plain : short).format(value);

  // One list of x for all series, as uPlot wants it. A series holds its value up to its next x.
  const aligned = (chart) => {
    if (chart.xs) return [chart.xs, ...chart.series.map((series) => series.y)];
    const xs = [...new Set(chart.series.flatMap((series) => series.x))].sort((a, b) => a - b);
    const held = (series) => {
      let next = 0;
      let value = null;
      return xs.map((x) => {
        if (next < series.x.length && series.x[next] === x) value = series.y[next++];
        return value;
      });
    };
    return [xs, ...chart.series.map(held)];
  };

  // Each series on top of those before it.
  const stacked = (columns) => {
    const below = columns[0].map(() => 0);
    return columns.map((column) => column.map((value, at) => (below[at] += value ?? 0)));
  };

  // 1, 2, 5, 10, ... or, where that is too much, powers of ten alone.
  const powers = (min, max) => {
    const decades = Math.log10(max / min);
    const within = decades < 2 ? [1, 2, 3, 5, 7] : decades < 3.5 ? [1, 2, 5] : [1];
    const every = Math.max(1, Math.ceil(decades / 8));
    const ticks = [];
    for (let power = Math.floor(Math.log10(min)); power <= Math.ceil(Math.log10(max)); power += every) {
      for (const factor of within) {
        const value = Number(`${factor}e${power}`);
        if (value >= min && value <= max) ticks.push(value);
      }
    }
    return ticks;
  };

  // Ticks of powers come close to each other where there is little room: then some have no name.
  const apart = (u, values, names) => {
    let free = -Infinity;
    return names.map((name, at) => {
      const half = name.length * 3.5 + 3;
      const middle = u.valToPos(values[at], "x");
      if (middle - half < free) return "";
      free = middle + half;
      return name;
    });
  };

  const scale = (axis, isX) => {
    if (axis.log) return { time: false, distr: 3, range: (_, min, max) => (min > 0 ? [min / 1.1, max * 1.1] : [1, 10]) };
    return {
      time: false,
      range: (u, min, max) => {
        if (axis.categories) return [-0.5, axis.categories.length - 0.5];
        if (min == null || !(max >= min)) return [0, 1];
        // From 0, on either side of it as far as the numbers go.
        const low = isX ? min : (axis.min ?? Math.min(0, min * 1.06));
        const high = isX ? max : (axis.max ?? Math.max(0, max * 1.06));
        return high > low ? [low, high] : [low, low + (Math.abs(low) || 1)];
      },
    };
  };

  const axis = (description, isX) => {
    const names = description.categories;
    const ticks = {};
    if (description.log) ticks.splits = (u, at, min, max) => powers(min, max);
    if (names) ticks.splits = () => names.map((_, at) => at);
    return {
      ...ticks,
      filter: (u, splits) => splits,
      values: (u, splits) => {
        const labels = splits.map((value) => (names ? names[value] : tick(value)));
        return isX && description.log ? apart(u, splits, labels) : labels;
      },
      label: description.label,
      labelSize: 20,
      labelFont: FONT,
      font: FONT,
      stroke: colour("soft"),
      grid: { stroke: colour("grid"), width: 1, show: !(isX && names) },
      ticks: { stroke: colour("axis"), width: 1, size: 5 },
      space: isX ? 64 : 36,
      size: isX ? 32 : (u, values) => 16 + 7 * Math.max(3, ...(values ?? []).map((value) => value.length)),
    };
  };

  const PATHS = {
    step: () => uPlot.paths.stepped({ align: 1 }),
    area: () => uPlot.paths.stepped({ align: 1 }),
    line: () => uPlot.paths.linear(),
    bars: () => uPlot.paths.bars({ size: [0.62, 90] }),
    points: () => () => null,
  };

  // `shown` are the exact values, which is what the legend says of a stack too.
  const series = (description, chart, shown) => {
    const stroke = colour(`s${description.colour}`);
    const solid = chart.stacked || description.form === "bars";
    const filled = solid ? stroke : description.form === "area" ? `${stroke}30` : undefined;
    const unit = chart.y.unit ? ` ${chart.y.unit}` : "";
    return {
      label: description.name,
      stroke: description.soft ? `${stroke}a0` : stroke,
      width: chart.stacked ? 0 : description.soft ? 1 : 1.7,
      dash: description.soft ? [4, 3] : undefined,
      fill: filled,
      paths: PATHS[description.form](),
      points: { show: description.form === "points", size: 4, width: 0, fill: `${stroke}b0` },
      value: (u, value, number, at) => (at == null || shown[at] == null ? "" : `${figure(shown[at])}${unit}`),
    };
  };

  // Lines across the chart with their names above it, each name in a place of its own.
  const marks = (u, list) => {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    const inside = list
      .map((mark) => ({ ...mark, x: u.valToPos(mark.at, "x", true) }))
      .filter((mark) => mark.x >= bbox.left - 1 && mark.x <= bbox.left + bbox.width + 1)
      .sort((a, b) => a.x - b.x);
    ctx.save();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "bottom";
    ctx.textAlign = "left";
    const ends = Array(MARK_ROWS).fill(bbox.left);
    for (const mark of inside) {
      const shade = colour(mark.limit ? "limit" : "soft");
      ctx.strokeStyle = shade;
      ctx.fillStyle = shade;
      ctx.lineWidth = (mark.limit ? 1.8 : 1) * ratio;
      ctx.setLineDash(mark.limit ? [] : [3 * ratio, 3 * ratio]);
      const width = ctx.measureText(mark.label).width;
      const wanted = Math.max(bbox.left, Math.min(mark.x - width / 2, bbox.left + bbox.width - width));
      let row = ends.findIndex((end) => end <= wanted);
      if (row < 0) row = ends.indexOf(Math.min(...ends));
      const left = Math.max(wanted, ends[row]);
      ends[row] = left + width + 7 * ratio;
      const bottom = bbox.top - (2 + row * MARK_ROW_HEIGHT) * ratio;
      ctx.fillText(mark.label, left, bottom);
      ctx.beginPath();
      ctx.moveTo(mark.x, bbox.top);
      ctx.lineTo(mark.x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };

  const draw = (holder, width, height) => {
    const chart = JSON.parse(holder.querySelector("script").textContent);
    const [xs, ...shown] = aligned(chart);
    let columns = chart.stacked ? stacked(shown) : shown;
    let all = chart.series.map((description, at) => series(description, chart, shown[at]));
    if (chart.stacked) {
      // What lies behind is drawn first.
      columns = columns.reverse();
      all = all.reverse();
    }
    const unit = chart.x.unit ? ` ${chart.x.unit}` : "";
    const named = chart.x.categories;
    const first = {
      label: chart.x.name ?? chart.x.label,
      value: (u, value) => (value == null ? "" : named ? named[value] : `${figure(value)}${unit}`),
    };
    const options = {
      width,
      height,
      padding: [chart.marks?.length ? 4 + MARK_ROWS * MARK_ROW_HEIGHT : 10, 14, 0, 0],
      cursor: {
        sync: chart.sync ? { key: chart.sync } : undefined,
        drag: { x: !named, y: false },
        points: { size: 6 },
      },
      scales: { x: scale(chart.x, true), y: scale(chart.y, false) },
      axes: [axis(chart.x, true), axis(chart.y, false)],
      series: [first, ...all],
      legend: { markers: { width: 0, fill: (u, at) => (at > 0 ? u.series[at].stroke() : undefined) } },
      hooks: {
        draw: [
          (u) => {
            if (chart.marks) marks(u, chart.marks);
            if (!holder.dataset.drawn) root.dataset.drawn = Number(root.dataset.drawn) + 1;
            holder.dataset.drawn = "yes";
          },
        ],
      },
    };
    return new uPlot(options, [xs, ...columns], holder);
  };

  const holders = [...document.querySelectorAll(".chart")];
  const drawn = new Map();
  root.dataset.charts = holders.length;

  const drawAll = (widthOf, height) => {
    for (const holder of holders) {
      drawn.get(holder)?.destroy();
      drawn.delete(holder);
      try {
        drawn.set(holder, draw(holder, widthOf(holder), height));
      } catch (error) {
        fail(error);
      }
    }
  };
  const onScreen = (holder) => Math.max(holder.clientWidth, 260);
  drawAll(onScreen, HEIGHT);

  let printing = false;
  const sizes = new ResizeObserver((entries) => {
    if (printing) return;
    for (const { target } of entries) {
      const chart = drawn.get(target);
      const width = onScreen(target);
      if (chart && chart.width !== width) chart.setSize({ width, height: HEIGHT });
    }
  });
  holders.forEach((holder) => sizes.observe(holder));

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(onScreen, HEIGHT));

  // On paper: light, and as wide as a column of a page.
  window.addEventListener("beforeprint", () => {
    printing = true;
    root.classList.add("print");
    drawAll((holder) => (holder.closest(".wide") ? 670 : 325), HEIGHT_PRINTED);
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    root.classList.remove("print");
    drawAll(onScreen, HEIGHT);
  });
})();
