// Density, learned values, spread and diversity per layer and head.

function layerAxis(layers) {
  return { type: 'category', data: Array.from({ length: layers }, (_, i) => String(i + 1)), name: 'layer', nameLocation: 'middle', nameGap: 28, ...axisStyle(), splitLine: { show: false } };
}

function percentAxis(top) {
  const style = axisStyle();
  return { type: 'value', min: 0, max: top, ...style, axisLabel: { ...style.axisLabel, formatter: value => `${Math.round(value * 1000) / 10} %` } };
}

// The next round share above the largest, so that sparse models use the height of a chart.
function roundTop(values) {
  return [0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1].find(top => largest(values, 0) <= top) || 1;
}

function densityByLayer(rows) {
  const heads = knownHeads(rows), layers = rows.length;
  const means = rows.map(mean);
  const top = roundTop(heads.map(head => head.value));
  // Heads of a layer stand side by side around its tick.
  const place = ({ layer, head }) => layer + (rows[layer].length > 1 ? (head / (rows[layer].length - 1) - 0.5) * 0.56 : 0);
  const option = () => ({
    grid: { left: 4, right: 12, top: 14, bottom: 26, containLabel: true },
    xAxis: [layerAxis(layers), { type: 'value', min: -0.5, max: layers - 0.5, show: false }],
    yAxis: { ...percentAxis(top), axisLine: { show: false } },
    tooltip: { ...tooltipStyle(), formatter: item => (item.seriesIndex === 0 ? tooltipCard(headName({ layer: item.data.layer, head: item.data.head }), [['density', percent(item.data.value[1])]])
      : tooltipCard(`Layer ${item.data[0] + 1}`, [['mean density', percent(item.data[1])]])) },
    series: [
      { type: 'scatter', xAxisIndex: 1, symbolSize: 9, data: heads.map(head => ({ value: [place(head), head.value], layer: head.layer, head: head.head, itemStyle: { color: layerColour(head.layer, layers), borderColor: colour('--surface'), borderWidth: 1 } })) },
      { type: 'line', xAxisIndex: 1, data: means.map((value, layer) => [layer, value]).filter(([, value]) => isNumber(value)), symbol: 'none', lineStyle: { color: colour('--ink'), width: 2 }, z: 3 },
    ],
  });
  return panel('Density by layer', 'Each dot is a head, the line the mean of the layer.', chart(`Mean density by layer: ${means.map(percent).join(', ')}`, option, '20rem'),
    numbers(['Layer', 'Mean', 'Sparsest head', 'Densest head'], rows.map((row, layer) => [`Layer ${layer + 1}`, percent(means[layer]), percent(smallest(finiteOf(row))), percent(largest(finiteOf(row)))]), 'Density by layer'));
}

function sortedHeads(rows) {
  const heads = knownHeads(rows).sort((a, b) => b.value - a.value), layers = rows.length;
  const top = roundTop(heads.map(head => head.value));
  const option = () => ({
    grid: { left: 4, right: 4, top: 14, bottom: 26, containLabel: true },
    xAxis: { type: 'category', data: heads.map((_, i) => i + 1), name: 'heads, densest first', nameLocation: 'middle', nameGap: 28, ...axisStyle(), splitLine: { show: false } },
    yAxis: percentAxis(top),
    tooltip: { ...tooltipStyle(), formatter: item => tooltipCard(headName(heads[item.dataIndex]), [['density', percent(heads[item.dataIndex].value)], ['rank', `${item.dataIndex + 1} of ${heads.length}`]]) },
    series: [
      { type: 'line', silent: true, symbol: 'none', data: heads.map(head => head.value), lineStyle: { width: 0 }, areaStyle: { color: colour('--track'), opacity: 0.75 } },
      { type: 'scatter', z: 3, symbolSize: heads.length > 150 ? 6 : 9, data: heads.map(head => ({ value: head.value, itemStyle: { color: layerColour(head.layer, layers), borderColor: colour('--surface'), borderWidth: 1 } })) },
    ],
  });
  return panel('Heads sorted by density', 'Each dot is a head; stronger colour is a later layer.', chart(`Heads from ${headName(heads[0])} with ${percent(heads[0].value)} down to ${headName(heads[heads.length - 1])} with ${percent(heads[heads.length - 1].value)}`, option, '20rem'),
    numbers(['Head', 'Density'], heads.map(head => [headName(head), percent(head.value)]), 'Heads sorted by density'));
}

// A step through every bin, closed at 0 on both sides.
function outline(edges, heights) {
  return [[edges[0], 0], ...heights.flatMap((height, i) => [[edges[i], height], [edges[i + 1], height]]), [edges[edges.length - 1], 0]];
}

function binAt(edges, x) {
  return Math.min(edges.length - 2, Math.max(0, edges.findIndex(edge => edge > x) - 1));
}

// Grid and x axis of a histogram.
function stepChart(edges, show, name) {
  const axis = axisStyle();
  return {
    grid: { left: 4, right: 18, top: 14, bottom: 26, containLabel: true },
    xAxis: { type: 'value', min: edges[0], max: edges[edges.length - 1], name, nameLocation: 'middle', nameGap: 28, ...axis, splitLine: { show: false }, axisLabel: { ...axis.axisLabel, formatter: show } },
  };
}

function densityOfTexts({ edges, counts }) {
  const layers = counts.length, totals = edges.slice(1).map((_, bin) => counts.reduce((sum, row) => sum + row[bin], 0));
  const all = totals.reduce((a, b) => a + b, 0);
  if (!all) return null;
  // Stacked by hand: the layers up to each.
  const steps = counts.map((_, layer) => totals.map((_, bin) => counts.slice(0, layer + 1).reduce((sum, row) => sum + row[bin], 0) / all));
  const label = bin => `${Math.round(edges[bin] * 100)} to ${Math.round(edges[bin + 1] * 100)} %`;
  const option = () => ({
    ...stepChart(edges, value => `${Math.round(value * 100)} %`, 'density of a text'),
    yAxis: { ...percentAxis(undefined), axisLine: { show: false } },
    tooltip: { ...tooltipStyle(), trigger: 'axis', axisPointer: { lineStyle: { color: colour('--muted') } }, formatter: items => {
      const bin = binAt(edges, items[0].axisValue);
      return tooltipCard(label(bin), [['all layers', percent(totals[bin] / all)], ...(layers <= 12 ? counts.map((row, layer) => [`Layer ${layer + 1}`, percent(row[bin] / all), layerColour(layer, layers)]) : [])]);
    } },
    series: steps.map((heights, layer) => ({ type: 'line', data: outline(edges, heights), showSymbol: false, lineStyle: { width: 1, color: colour('--surface') }, areaStyle: { color: layerColour(layer, layers), opacity: 1 } })).reverse(),
  });
  return panel('Density of single texts', 'How often a head and a text meet at each density; a head may be sparse on one text and dense on another. Stronger colour is a later layer.',
    chart(`Distribution of the density over heads and texts: ${totals.map((total, bin) => (total ? `${label(bin)}: ${percent(total / all)}` : '')).filter(Boolean).join('; ')}`, option, '17rem'),
    numbers(['Density', 'Share'], totals.map((total, bin) => [label(bin), percent(total / all)]), 'Density of single texts'));
}

function showDensity() {
  const { density, density_histogram: histogram } = run.heads;
  if (!knownHeads(density).length) return mount('density', absent('heads.json', 'density'));
  if (smallest(knownHeads(density).map(head => head.value)) === 1) {
    return mount('density', el('p', { class: 'absent' }, el('strong', {}, 'Every head is fully dense. '), 'Weights of this model may be small, but none is exactly zero: all heads of all texts stand at 100 %.'));
  }
  return mount('density', el('div', { class: 'grid-2' }, densityByLayer(density), sortedHeads(density)), histogram && densityOfTexts(histogram));
}

// Twentieths around the values of heads.
function valueRange(known) {
  const values = known.map(head => head.value);
  const low = Math.floor(smallest(values) * 20 - 1e-9) / 20;
  return { low, top: Math.max(low + 0.05, Math.ceil(largest(values) * 20 + 1e-9) / 20) };
}

function valueHistogram(name, known) {
  const { low, top } = valueRange(known);
  const bins = Math.min(24, Math.max(6, Math.ceil(Math.sqrt(known.length) * 2)));
  const width = (top - low) / bins || 1;
  const edges = Array.from({ length: bins + 1 }, (_, i) => low + i * width);
  const totals = Array(bins).fill(0);
  for (const { value } of known) ++totals[Math.min(bins - 1, Math.floor((value - low) / width))];
  const option = () => ({
    ...stepChart(edges, value => fixed(value, 2), name),
    yAxis: { type: 'value', minInterval: 1, ...axisStyle(), axisLine: { show: false } },
    tooltip: { ...tooltipStyle(), trigger: 'axis', axisPointer: { lineStyle: { color: colour('--muted') } }, formatter: items => {
      const bin = binAt(edges, items[0].axisValue);
      return tooltipCard(`${name} ${fixed(edges[bin], 3)} to ${fixed(edges[bin + 1], 3)}`, [['heads', count(totals[bin])]]);
    } },
    series: [{ type: 'line', data: outline(edges, totals), showSymbol: false, lineStyle: { width: 2, color: colour('--accent') }, itemStyle: { color: colour('--accent') }, areaStyle: { color: colour('--accent'), opacity: 0.16 } }],
  });
  return panel(`How many heads have which ${name}`, 'The number of heads in each interval.', chart(`Histogram of ${name} over ${known.length} heads: ${totals.join(', ')}`, option, '18rem'));
}

function valueAgainstDensity(name, rows, density) {
  const heads = knownHeads(rows).map(head => ({ ...head, y: (density[head.layer] || [])[head.head] })).filter(head => isNumber(head.y));
  if (heads.length < 2) return null;
  const layers = rows.length, top = roundTop(heads.map(head => head.y));
  const option = () => ({
    grid: { left: 4, right: 16, top: 14, bottom: 26, containLabel: true },
    xAxis: { type: 'value', scale: true, name, nameLocation: 'middle', nameGap: 28, ...axisStyle() },
    yAxis: percentAxis(top),
    tooltip: { ...tooltipStyle(), formatter: item => tooltipCard(headName(heads[item.dataIndex]), [[name, fixed(item.data.value[0], 3)], ['density', percent(item.data.value[1])]]) },
    series: [{ type: 'scatter', symbolSize: 10, data: heads.map(head => ({ value: [head.value, head.y], itemStyle: { color: layerColour(head.layer, layers), borderColor: colour('--surface'), borderWidth: 1 } })) }],
  });
  return panel(`Density against ${name}`, 'Each dot is a head; stronger colour is a later layer.', chart(`Density against ${name} of ${heads.length} heads`, option, '18rem'));
}

function showLearned() {
  const tables = Object.entries(run.heads.head_values || {}).filter(([, rows]) => knownHeads(rows).length);
  if (!tables.length) {
    return mount('learned', el('p', { class: 'absent' }, el('strong', {}, 'Nothing to show. '), 'The attention of this model keeps no value for each head; alpha-entmax attention keeps its alpha.'));
  }
  for (const [name, rows] of tables) {
    const known = knownHeads(rows);
    const { low, top } = valueRange(known);
    mount('learned', heatPanel(`${words(name)} of each head`, (HEAD_VALUES[name] || {}).text, rows, { low, top, unit: name, show: value => fixed(value, 2) }),
      el('div', { class: 'grid-2' }, valueHistogram(name, known), valueAgainstDensity(name, rows, run.heads.density || [])));
  }
  mount('learned', ...trajectoryPanels().map(track => track.panel));
}

function diversityPanel(diversity) {
  const option = () => ({
    grid: { left: 4, right: 12, top: 14, bottom: 26, containLabel: true },
    xAxis: layerAxis(diversity.length), yAxis: { type: 'value', min: 0, ...axisStyle() },
    tooltip: { ...tooltipStyle(), formatter: item => tooltipCard(`Layer ${item.dataIndex + 1}`, [['diversity', fixed(item.data.value, 3)]]) },
    series: [{ type: 'line', symbol: 'circle', symbolSize: 10, lineStyle: { color: colour('--ink'), width: 2 }, data: diversity.map((value, layer) => ({ value, itemStyle: { color: layerColour(layer, diversity.length), borderColor: colour('--surface'), borderWidth: 1 } })) }],
  });
  return panel('Diversity of the heads of a layer', 'Jensen–Shannon divergence for one token, in units of the logarithm of the tokens it sees: 0 when all heads look alike.',
    chart(`Diversity by layer: ${diversity.map(value => fixed(value, 3)).join(', ')}`, option, '17rem'),
    numbers(['Layer', 'Diversity'], diversity.map((value, layer) => [`Layer ${layer + 1}`, fixed(value, 4)]), 'Diversity of the heads of each layer'));
}

function showSpread() {
  const { entropy, diversity } = run.heads;
  mount('spread', el('div', { class: 'grid-2' },
    knownHeads(entropy).length ? heatPanel('Entropy of each head', '0: all weight on one token. 1: the same weight on every token that the head sees.', entropy, { low: 0, top: 1, unit: 'entropy', show: value => fixed(value, 2) }) : absent('heads.json', 'entropy'),
    finiteOf(diversity || []).length ? diversityPanel(diversity) : absent('heads.json', 'diversity')));
}
