// Which positions each method takes, and the variance that they leave.

const SELECTIONS = {
  greedy: { name: 'Greedy', text: 'Each next position is the one that leaves the least.' },
  random: { name: 'Random', text: 'Positions drawn at random.' },
  even: { name: 'Evenly spaced', text: 'Positions at equal distances.' },
  variance: { name: 'Largest variance', text: 'The positions whose own scores vary most.' },
  cholesky: { name: 'Pivoted Cholesky', text: 'Each next position is the one that those before explain least.' },
};
const LEAST_LEFT = 1e-3;  // shares of variance below this are not drawn

function methodName(name) {
  return name === 'floor' ? 'PCA floor' : (SELECTIONS[name] || {}).name || words(name);
}

// [{name, layer, selection}]: every layer, then all together.
function selectionScopes() {
  const { layers = [], shared } = run.spectra.selection || {};
  return [...(layers || []).map((selection, layer) => ({ name: `Layer ${layer + 1}`, tick: String(layer + 1), selection })),
    ...(shared ? [{ name: 'All layers together', tick: 'all', selection: shared }] : [])];
}

// Colours of the order in which things are taken: the first are strongest.
function orderLegend(what, last) {
  const bar = el('div', { class: 'legend under' });
  barRedraws.push(() => bar.replaceChildren(`Order of ${what}`, el('div', {}, el('span', { class: 'ramp', style: `background:linear-gradient(90deg,${orderColours().join(',')})` }),
    el('div', { class: 'ramp-ticks' }, el('span', { style: 'left:0%' }, 'first'), el('span', { style: 'left:100%' }, `number ${count(last)}`)))));
  return bar;
}

function orderColours() {
  return [...ramp('present')].reverse();
}

function stripOption(scopes, method, first, width) {
  const { n } = run.spectra, axis = axisStyle();
  const room = width - 46, cell = room / n, tall = scopes.length > 16 ? 9 : 16;
  const taken = scopes.flatMap(({ name, selection }, row) => (selection.positions[method] || []).slice(0, first).map((position, order) => ({ value: [position, row, order], name, left: ((selection.residual || {})[method] || [])[order + 1] })));
  return {
    grid: { left: 30, right: 16, top: 6, bottom: 40 },
    xAxis: { type: 'value', min: -0.5, max: n - 0.5, name: 'position of the key', nameLocation: 'middle', nameGap: 26, ...axis, splitLine: { show: false }, axisLine: { show: false },
      axisLabel: { ...axis.axisLabel, customValues: [...new Set([0, 0.25, 0.5, 0.75, 1].map(share => Math.round(share * (n - 1))))] } },
    yAxis: { type: 'category', inverse: true, data: scopes.map(scope => scope.tick), ...axis, axisLine: { show: false }, splitLine: { show: false }, axisLabel: { ...axis.axisLabel, interval: 0, hideOverlap: false } },
    visualMap: { show: false, type: 'continuous', seriesIndex: scopes.length, min: 0, max: Math.max(1, first - 1), dimension: 2, inRange: { color: orderColours() } },
    tooltip: { ...tooltipStyle(), formatter: ({ data }) => tooltipCard(data.name, [['position', count(data.value[0])], ['taken as number', count(data.value[2] + 1)], ['variance left then', percent(data.left)]]) },
    series: [
      ...scopes.map((_, row) => ({ type: 'line', silent: true, symbol: 'none', data: [[-0.5, row], [n - 0.5, row]], lineStyle: { color: colour('--track'), width: tall, cap: 'butt', opacity: 0.6 }, z: 1 })),
      { type: 'scatter', symbol: 'roundRect', symbolSize: [Math.max(3, Math.min(14, cell - 1)), tall], data: taken, z: 3, itemStyle: { opacity: 1, borderColor: colour('--surface'), borderWidth: cell > 5 ? 1 : 0.5 } },
    ],
  };
}

function stripPanel(scopes) {
  const methods = [...new Set(scopes.flatMap(({ selection }) => Object.keys(selection.positions)))];
  const longest = largest(scopes.flatMap(({ selection }) => Object.values(selection.positions).map(list => list.length)), 0);
  if (!longest) return absent('spectra.json', 'selected positions');
  const sizes = [4, 8, 16, 32, 64].filter(size => size < longest).concat(longest).map(String);
  const chosen = { method: methods[0], first: nearest(sizes, 16) };
  const set = (key, show) => value => { chosen[key] = value; show(); };
  return panel('Which positions', 'Each row is a layer, each mark a key whose score is computed for every query.', ...controlled(show => [
    keyChoice('Method', methods, chosen.method, methodName, set('method', show)),
    keyChoice('Positions', sizes, chosen.first, size => size, set('first', show)),
  ], () => {
    const first = Number(chosen.first), known = scopes.filter(({ selection }) => (selection.positions[chosen.method] || []).length);
    const list = ({ selection }) => (selection.positions[chosen.method] || []).slice(0, first);
    if (!known.length) return [absent('spectra.json', 'positions of this method')];
    return [el('p', { class: 'note' }, (SELECTIONS[chosen.method] || {}).text),
      chart(`${methodName(chosen.method)}, first ${first} positions. ${known.map(scope => `${scope.name}: ${list(scope).slice(0, 8).join(', ')}`).join('; ')}`, width => stripOption(known, chosen.method, first, width), `${known.length * (known.length > 16 ? 1 : 1.6) + 3.2}rem`),
      orderLegend('selection', first),
      numbers(['', 'Positions, in the order in which they are taken'], known.map(scope => [scope.name, list(scope).join(', ')]), `Positions that ${methodName(chosen.method)} takes`)];
  }));
}

function residualLines(residual) {
  const names = Object.keys(residual || {}).filter(name => finiteOf(residual[name]).length);
  const methods = names.filter(name => name !== 'floor');
  const points = name => residual[name].map((left, i) => [i, left]);
  return [...methods.map((name, i) => ({ name: methodName(name), points: points(name), ...paletteLine(i), symbol: undefined })),
    ...(names.includes('floor') ? [{ name: methodName('floor'), points: points('floor'), tint: () => colour('--ink'), dash: [7, 4], front: true }] : [])];
}

function leftChart(title, lines, what) {
  const longest = largest(lines.map(line => line.points.length), 1);
  const told = [0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512].filter(i => i < longest);
  const at = (line, i) => percent((line.points[i] || [])[1]), middle = told[told.length >> 1];
  const option = width => linesOption(width, lines, {
    x: { name: what, format: count }, y: { log: true, format: percentTick, low: LEAST_LEFT }, heading: i => `${count(i)} ${what}`,
  });
  return [chart(`${title} after ${middle} ${what}: ${lines.map(line => `${line.name} ${at(line, middle)}`).join(', ')}`, option, '22rem'),
    numbers([words(what), ...lines.map(line => line.name)], told.map(i => [count(i), ...lines.map(line => at(line, i))]), title)];
}

function residualPanel(scopes) {
  const known = scopes.filter(({ selection }) => residualLines(selection.residual).length);
  if (!known.length) return absent('spectra.json', 'variance left by positions');
  let at = known.length - 1;
  const title = 'Variance that the positions leave';
  return panel(title, 'The share that the best linear map from the first so many positions does not explain (logarithmic, down to 0.1 %). The floor is that of as many principal components: no choice of positions goes below.',
    ...controlled(show => {
      const select = el('select', { onchange: event => { at = Number(event.target.value); show(); } }, known.map(({ name }, i) => el('option', { value: i, selected: i === at }, name)));
      const move = by => { at = (at + by + known.length) % known.length; select.value = String(at); show(); };
      return [known.length > 1 && stepper('Layer', select, move, 'pick-selection')];
    }, () => leftChart(`${title}: ${known[at].name}`, residualLines(known[at].selection.residual), 'positions')));
}

function showPositions() {
  const scopes = selectionScopes();
  if (!scopes.length) return mount('positions', absent('spectra.json', 'selected positions'));
  mount('positions', stripPanel(scopes), residualPanel(scopes));
}
