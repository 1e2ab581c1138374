// Whole matrices of scores: their spectrum, and the pairs of a query and a key that are taken.

function pairsOption(pairs, width) {
  const { n } = run.spectra, axis = axisStyle();
  const side = name => ({ type: 'value', min: -0.5, max: n - 0.5, ...axis, axisLine: { show: true, onZero: false, lineStyle: { color: colour('--line') } }, splitLine: { show: false }, axisLabel: { ...axis.axisLabel, fontSize: 11, margin: 4, customValues: [0, n - 1], showMinLabel: true, showMaxLabel: true, align: name === 'key' ? undefined : 'right' } });
  return {
    grid: { left: 26, right: 8, top: 6, bottom: 20, show: true, backgroundColor: colour('--raised'), borderWidth: 0 },
    xAxis: side('key'), yAxis: { ...side('query'), inverse: true },
    visualMap: { show: false, type: 'continuous', min: 0, max: Math.max(1, pairs.length - 1), dimension: 2, inRange: { color: orderColours() } },
    tooltip: { ...tooltipStyle(), formatter: ({ value }) => tooltipCard(`Number ${count(value[2] + 1)}`, [['query', count(value[1])], ['key', count(value[0])]]) },
    series: [{ type: 'scatter', symbol: 'roundRect', symbolSize: Math.max(3.5, Math.min(9, (width - 34) / n)), data: pairs.map(([query, key], i) => [key, query, i]), itemStyle: { opacity: 1 } }],
  };
}

function pairsPanel(pairs) {
  const most = largest(pairs.map(list => list.length), 0);
  if (!most) return absent('spectra.json', 'pairs');
  const picture = (list, layer) => {
    const name = `Layer ${layer + 1}`;
    return el('figure', { role: 'group', 'aria-label': name }, el('figcaption', {}, el('h3', {}, name)),
      chart(`${name}: ${list.length} pairs, first query and key ${list.slice(0, 4).map(([query, key]) => `${query} and ${key}`).join(', ')}`, width => pairsOption(list, width), 'auto;min-height:7rem;aspect-ratio:1 / 0.95'));
  };
  return panel('Which pairs', 'Down: the query’s position; across: the key’s. All other scores of the matrix follow from those at the marks.',
    el('div', { class: 'grid-small grid-pairs' }, pairs.map((list, layer) => list.length > 0 && picture(list, layer))), orderLegend('selection', most),
    numbers(['', 'Query and key, in the order in which they are taken'], pairs.map((list, layer) => [`Layer ${layer + 1}`, list.map(([query, key]) => `${query}·${key}`).join(', ')]), 'Pairs of each layer'));
}

function pairsLeft(residual) {
  const lines = residual.map((values, layer) => ({ name: `Layer ${layer + 1}`, points: values.map((left, i) => [i, left]), tint: () => layerColour(layer, residual.length) })).filter(line => finiteOf(line.points.map(point => point[1])).length);
  if (!lines.length) return absent('spectra.json', 'variance left by pairs');
  const title = 'Variance that the pairs leave', show = percent;
  const longest = largest(lines.map(line => line.points.length), 1);
  const told = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512].filter(i => i < longest), middle = told[told.length >> 1];
  return panel(title, 'The share that the best linear map from the first so many pairs does not explain.',
    chart(`${title} after ${middle} pairs: ${lines.map(line => `${line.name} ${show((line.points[middle] || [])[1])}`).join(', ')}`, width => linesOption(width, lines, { x: { name: 'pairs', format: count }, y: { format: percentTick, show: percent, top: 1 }, heading: i => `${count(i)} pairs`, legend: false }), '22rem'),
    layerLegend(residual.length),
    numbers(['Pairs', ...lines.map(line => line.name)], told.map(i => [count(i), ...lines.map(line => show((line.points[i] || [])[1]))]), title));
}

function showMatrices() {
  const { matrix, n } = run.spectra;
  if (!matrix) return mount('matrices', absent('spectra.json', 'whole matrices'));
  const { eigenvalues, total, pairs, residual, samples, rank } = matrix;
  const lines = spectrumLines(eigenvalues, null, true, total);
  const spectrum = lines.length ? spectrumPanel('Variance held by the strongest patterns', `Patterns of all ${count(n * n)} scores of a head at once, the first ${count(rank)} of ${count(samples)} sampled matrices; dashed: 90, 95 and 99 %.`, lines, true, 'patterns', layerLegend(eigenvalues.length))
    : absent('spectra.json', 'eigenvalues of whole matrices');
  mount('matrices', el('div', { class: 'grid-2' }, spectrum, pairsLeft(residual)), pairsPanel(pairs));
}
