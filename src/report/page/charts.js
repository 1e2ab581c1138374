// Apache ECharts in the page's colours. Options are functions: they are called again when the
// colours change.

const charts = [];

function chart(label, option, height) {
  const node = el('div', { class: 'chart', role: 'img', 'aria-label': label, style: height ? `height:${height}` : '' });
  charts.push({ node, option, instance: null });
  return node;
}

function drawChart(entry) {
  if (!entry.node.isConnected) return;
  if (!entry.instance) {
    entry.instance = echarts.init(entry.node, null, { renderer: 'svg' });
    new ResizeObserver(() => {
      entry.instance.resize();
      if (entry.node.clientWidth !== entry.width) drawChart(entry);
    }).observe(entry.node);
  }
  entry.width = entry.node.clientWidth;
  entry.instance.setOption({ ...base(), ...entry.option(entry.width) }, { notMerge: true });
}

function redraw(node) {
  const entry = charts.find(chart => chart.node === node);
  if (entry) drawChart(entry);
}

function drawCharts() {
  charts.forEach(drawChart);
}

// Puts what `build` makes in place of what `content` holds. Charts and colour bars that go are
// forgotten; tables that were open stay open.
function rebuild(content, build) {
  const open = [...content.querySelectorAll('details')].map(node => node.open);
  for (let i = charts.length - 1; i >= 0; --i)
    if (content.contains(charts[i].node)) { if (charts[i].instance) charts[i].instance.dispose(); charts.splice(i, 1); }
  for (const draw of content.bars || []) barRedraws.splice(barRedraws.indexOf(draw), 1);
  const before = barRedraws.length;
  content.replaceChildren(...build().filter(Boolean));
  content.bars = barRedraws.slice(before);
  content.querySelectorAll('details').forEach((node, i) => { node.open = Boolean(open[i]); });
  content.bars.forEach(draw => draw());
  charts.filter(entry => content.contains(entry.node)).forEach(drawChart);
}

// Controls, and below them what is built again whenever one of them changes.
function controlled(controls, build) {
  const content = el('div', { class: 'mount inner' });
  const show = () => rebuild(content, build);
  const fields = controls(show).filter(Boolean);
  show();
  return [fields.length > 0 && el('div', { class: 'controls' }, fields), content];
}

function base() {
  return {
    animation: false,
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: colour('--muted') },
  };
}

function axisStyle() {
  return {
    axisLine: { show: true, lineStyle: { color: colour('--line') } },
    axisTick: { show: false },
    splitLine: { show: true, lineStyle: { color: colour('--line'), opacity: 0.7 } },
    axisLabel: { color: colour('--muted'), fontSize: 12, hideOverlap: true },
    nameTextStyle: { color: colour('--muted'), fontSize: 12 },
  };
}

function tooltipStyle() {
  return {
    confine: true,
    backgroundColor: colour('--surface'),
    borderColor: colour('--line'),
    borderWidth: 1,
    padding: [8, 12],
    textStyle: { color: colour('--ink'), fontSize: 13 },
    extraCssText: 'box-shadow:0 4px 18px rgb(0 0 0 / 16%);border-radius:8px;max-width:20rem;white-space:normal',
  };
}

// Title and lines of name and value as elements, so that names are never read as markup.
function tooltipCard(title, lines) {
  return el('div', {}, el('div', { style: 'font-weight:600;margin-bottom:2px' }, title),
    lines.map(([name, value, tint]) => el('div', { style: 'display:flex;gap:1.25em;justify-content:space-between' },
      el('span', {}, tint && el('span', { class: 'key', style: `--key:${tint}` }), name),
      el('span', { style: 'font-weight:560' }, value))));
}

function legendStyle(names) {
  return { data: names, top: 0, left: 0, itemWidth: 22, itemHeight: 9, itemGap: 16, textStyle: { color: colour('--ink'), fontSize: 12.5 }, inactiveColor: colour('--line') };
}

// Space above a plot for a legend that wraps: ECharts does not make room for it.
function legendRoom(names, width) {
  let rows = 1, line = 0;
  for (const name of names) {
    const item = 22 + 5 + 16 + name.length * 6.9;
    if (line > 0 && line + item > width) { ++rows; line = 0; }
    line += item;
  }
  return 11 + rows * 25;
}

// Ticks at 1, 2, 5 times powers of ten (only powers where there are many) for an axis that holds
// log10 of the values.
function logTicks(low, high) {
  const out = [];
  const decades = Math.log10(high / low);
  const steps = decades > 3.5 ? [1] : decades > 1.6 ? [1, 3] : decades > 0.5 ? [1, 2, 5] : [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power)
    for (const step of steps) {
      const value = step * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) out.push(Math.log10(value));
    }
  return out;
}

// A logarithmic axis as a linear one over log10, which places ticks well on short ranges too.
function logAxis(values, format, ticks) {
  const low = smallest(values), high = largest(values);
  const pad = Math.max(0.03, 0.04 * Math.log10(high / low));
  const at = ticks ? ticks.map(Math.log10) : logTicks(low * 10 ** -pad, high * 10 ** pad);
  const style = axisStyle();
  return {
    type: 'value', ...style,
    min: Math.log10(low) - pad, max: Math.log10(high) + pad,
    axisTick: { show: false, customValues: at },
    axisLabel: { ...style.axisLabel, customValues: at, formatter: value => format(10 ** value) },
  };
}

// Sequential and diverging colours, dark to light in the dark theme; both are safe for the common
// kinds of colour blindness. `present` begins where a colour is told from the empty ground.
const RAMPS = {
  light: {
    sequential: ['#f7f5ee', '#d3e6c8', '#93c9ab', '#4a9fa3', '#2f6d97', '#2b3a77', '#1c1646'],
    present: ['#d3e6c8', '#93c9ab', '#4a9fa3', '#2f6d97', '#2b3a77', '#1c1646'],
    diverging: ['#7f3b08', '#b9630f', '#eaa650', '#fbdfb4', '#f7f5ee', '#d5d3ea', '#a094ca', '#6d4ba0', '#3a0f66'],
  },
  dark: {
    sequential: ['#151916', '#1d2f45', '#23577c', '#2f8690', '#63b588', '#bcdc8d', '#fff9cf'],
    present: ['#26415e', '#23577c', '#2f8690', '#63b588', '#bcdc8d', '#fff9cf'],
    diverging: ['#ffd9a0', '#fbaa4b', '#c06c12', '#5c360e', '#171b18', '#332a57', '#6552a8', '#a48ef0', '#ded4ff'],
  },
};

function isDark() {
  return document.documentElement.dataset.theme === 'dark';
}

function ramp(kind) {
  return RAMPS[isDark() ? 'dark' : 'light'][kind];
}

// A colour bar with tick texts at positions 0..1.
function colourBar(kind, ticks) {
  return el('div', {}, el('span', { class: 'ramp', style: `background:linear-gradient(90deg,${ramp(kind).join(',')})` }),
    el('div', { class: 'ramp-ticks' }, ticks.map(([at, text]) => el('span', { style: `left:${at * 100}%` }, text))));
}
