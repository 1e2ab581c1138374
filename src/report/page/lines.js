// Charts of several curves over numbers: dimensions, positions.

const LINE_DASHES = ['solid', [7, 3], [2, 3], [10, 3, 2, 3]];
const MOST_TOLD = 14;  // curves that a tooltip lists one by one

function numberAxis({ name, log, format, top, low = 0, interval, ticks }, values) {
  const axis = log ? logAxis(values, format, ticks) : { type: 'value', min: low, max: top, interval, ...axisStyle() };
  if (!log) axis.axisLabel = { ...axis.axisLabel, formatter: format, customValues: ticks };
  return name ? { ...axis, name, nameLocation: 'middle', nameGap: 28 } : axis;
}

// Names and values of a tooltip; of many curves only the ends and the middle.
function toldLines(told, show) {
  if (told.length <= MOST_TOLD) return told.map(({ name, value, tint }) => [name, show(value), tint]);
  const sorted = [...told].sort((a, b) => b.value - a.value);
  return [['highest', sorted[0]], ['middle', sorted[sorted.length >> 1]], ['lowest', sorted[sorted.length - 1]]]
    .map(([which, { name, value, tint }]) => [`${which}: ${name}`, show(value), tint]);
}

// lines: [{name, tint: () => colour, dash, symbol, points: [[x, y or null]]}]; x and y: {name, log,
// format for ticks, show for tooltips, ...}; marks: heights of thin dashed lines. A logarithmic axis leaves out what is not
// positive, and what lies below its `low`.
function linesOption(width, lines, { x, y, marks = [], heading, legend = true }) {
  const names = lines.map(line => line.name);
  const usable = value => isNumber(value) && (!y.log || value > (y.low || 0));
  const to = (axis, value) => (axis.log ? Math.log10(value) : value);
  const at = (axis, value) => (axis.log ? 10 ** value : value);
  const xs = lines.flatMap(line => line.points.map(point => point[0]));
  const ys = lines.flatMap(line => line.points.map(point => point[1])).filter(usable);
  const ends = xs.length ? [smallest(xs), largest(xs)] : [1, 2];
  const wide = x.log && ends[0] === ends[1] ? [ends[0] / 2, ends[0] * 2] : ends;
  return {
    legend: legend ? legendStyle(names) : undefined,
    grid: { left: y.name ? 22 : 4, right: 18, top: legend ? legendRoom(names, width) : 14, bottom: 26, containLabel: true },
    xAxis: { ...numberAxis({ low: ends[0], top: ends[1], ...x }, [...xs, ...wide]), splitLine: { show: false } },
    yAxis: numberAxis(y, ys.length ? [...ys, ...marks] : [1, 2]),
    tooltip: { ...tooltipStyle(), trigger: 'axis', axisPointer: { lineStyle: { color: colour('--muted') } }, formatter: items => {
      const told = items.filter(item => item.seriesName && isNumber(item.value[1])).map(item => ({ name: item.seriesName, value: at(y, item.value[1]), tint: item.color }));
      return told.length ? tooltipCard(heading(Math.round(at(x, items[0].value[0]))), toldLines(told, y.show || y.format)) : '';
    } },
    series: [
      ...lines.map(line => ({ type: 'line', name: line.name, color: line.tint(), symbol: line.symbol || 'circle', symbolSize: 8, showSymbol: Boolean(line.symbol), z: line.front ? 4 : 2,
        lineStyle: { width: line.front ? 2.5 : 2, type: line.dash || 'solid' }, data: line.points.map(([px, py]) => [to(x, px), usable(py) ? to(y, py) : null]) })),
      ...marks.map(mark => ({ type: 'line', name: '', data: wide.map(end => [to(x, end), to(y, mark)]), symbol: 'none', silent: true, z: 1, tooltip: { show: false }, lineStyle: { color: colour('--muted'), width: 1, type: [4, 4] } })),
    ],
  };
}

// Ticks of shares.
function percentTick(value) {
  return `${short(value * 100, 2)}\u00a0%`;
}

// A line's place in the palette: colours first, then dashes.
function paletteLine(i) {
  return { tint: () => colour(`--series-${i % HEAD_TINTS + 1}`), dash: LINE_DASHES[Math.floor(i / HEAD_TINTS) % LINE_DASHES.length], symbol: SYMBOLS[i % SYMBOLS.length] };
}

// Which colour is which layer, and what else is drawn.
function layerLegend(layers, more) {
  const bar = el('div', { class: 'legend under' });
  const key = (tint, name) => el('span', { class: 'layer-key' }, el('span', { class: 'key', style: `--key:${tint}` }), name);
  barRedraws.push(() => bar.replaceChildren(layers === 1 ? '' : 'Layer',
    ...(layers > 12 ? [colourBar('present', [[0, '1'], [1, String(layers)]])] : Array.from({ length: layers }, (_, layer) => key(layerColour(layer, layers), layers === 1 ? 'Layer 1' : String(layer + 1)))),
    ...(more ? [el('span', { class: 'layer-key' }, el('span', { class: 'key-line' }), more)] : [])));
  return bar;
}
