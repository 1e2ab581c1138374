// What reconstruction misses on text it was not fitted to, and what it costs.

const COSTS = { scores: 'Scores', core: 'Attention core', layer: 'Whole layer' };
const COST_TEXTS = 'Scores: the products of queries and keys. Attention core: with the reconstruction and the weighted sum of values. Whole layer: with its projections.';

const SHARINGS = { head: 'Each head', layer: 'Each layer', shared: 'All layers together' };

function sharingName(sharing) {
  return SHARINGS[sharing] || words(sharing);
}

function costName(name) {
  return COSTS[name] || words(name);
}

// [{sharing, positions, rows, ridge, value}], value the mean of all that is known.
function fits() {
  return (run.spectra.reconstruction || []).map(({ positions, sharing, heldout_residual: rows, ridge }) => ({ positions, sharing, rows, ridge, value: mean(rows.flat()) }));
}

function fitsByPositions(all, sharings) {
  const sizes = [...new Set(all.map(fit => fit.positions))].sort((a, b) => a - b);
  const of = (sharing, size) => (all.find(fit => fit.sharing === sharing && fit.positions === size) || {}).value;
  const lines = sharings.map((sharing, i) => ({ name: sharingName(sharing), points: sizes.map(size => [size, of(sharing, size)]), ...paletteLine(i) }));
  const title = 'Missed variance by number of positions';
  return panel(title, 'Share of held-out variance that is left, mean over layers and heads, by what has a map of its own; both axes are logarithmic.',
    chart(`${title}: ${lines.map(line => `${line.name} ${line.points.map(([size, value]) => `${size}: ${percent(value)}`).join(', ')}`).join('; ')}`, width => linesOption(width, lines, {
      x: { name: 'positions', log: true, format: count, ticks: sizes }, y: { log: true, format: percentTick }, heading: size => `${count(size)} positions` }), '20rem'),
    numbers(['Positions', ...lines.map(line => line.name)], sizes.map(size => [count(size), ...sharings.map(sharing => percent(of(sharing, size)))]), title));
}

// A chart over layers; lines: [{name, values per layer}].
function byLayer(title, sentence, lines, show) {
  const layers = spectraLayers();
  const drawn = lines.map((line, i) => ({ name: line.name, points: line.values.map((value, layer) => [layer + 1, value]), ...paletteLine(i) }));
  const top = roundTop(lines.flatMap(line => finiteOf(line.values)));
  return panel(title, sentence, chart(`${title}: ${lines.map(line => `${line.name} ${line.values.map(show).join(', ')}`).join('; ')}`, width => linesOption(width, drawn, {
    x: { name: 'layer', format: String, low: 0.5, top: layers + 0.5, ticks: Array.from({ length: layers }, (_, layer) => layer + 1) }, y: { format: percentTick, show: percent, top }, heading: layer => `Layer ${layer}` }), '20rem'),
  numbers(['Layer', ...lines.map(line => line.name)], Array.from({ length: layers }, (_, layer) => [`Layer ${layer + 1}`, ...lines.map(line => show(line.values[layer]))]), title));
}

function fitsOfSize(own) {
  const layers = spectraLayers();
  const spreadOut = rows => Array.from({ length: layers }, (_, layer) => mean(rows.length === 1 ? rows[0] : rows[layer]));
  const [{ positions }] = own;
  const heads = own.filter(fit => fit.rows.some(row => row.length > 1) && finiteOf(fit.rows.flat()).length);
  const ridges = own.filter(fit => finiteOf([fit.ridge].flat(2)).length).map(fit => `${lower(sharingName(fit.sharing))} ${spread([fit.ridge].flat(2), value => short(value, 2))}`);
  return [byLayer(`Missed variance by layer, ${count(positions)} positions`, `Mean over heads.${ridges.length ? ` Ridge of the fit: ${ridges.join(', ')}.` : ''}`, own.map(fit => ({ name: sharingName(fit.sharing), values: spreadOut(fit.rows) })), percent),
    ...heads.map(fit => heatPanel(`Missed variance of each head, ${count(positions)} positions`, `${sharingName(fit.sharing)} has a map. What is left of each head’s own variance.`, fit.rows, { low: 0, top: largest(finiteOf(fit.rows.flat()), 0) || 1, unit: 'missed', show: percent, whole: true }))];
}

function queriesPanel({ positions, common, own }) {
  if (!finiteOf([...common, ...own]).length) return absent('spectra.json', 'positions by query');
  return byLayer(`One set of ${count(positions)} positions, or one for each query`, 'Share of variance that is left when all queries share their positions, and when the query at each place has its own.',
    [{ name: 'Common to all queries', values: common }, { name: 'Own for each query position', values: own }], percent);
}

function showReconstruction() {
  const all = fits(), known = all.filter(fit => isNumber(fit.value)), { queries } = run.spectra;
  const extra = queries ? queriesPanel(queries) : null;
  if (!known.length) return mount('reconstruction', absent('spectra.json', 'reconstruction'), extra);
  const sharings = [...new Set(known.map(fit => fit.sharing))];
  const sizes = [...new Set(known.map(fit => fit.positions))].sort((a, b) => a - b).map(String);
  let size = nearest(sizes, 16);
  mount('reconstruction', fitsByPositions(known, sharings), ...controlled(show => [keyChoice('Positions', sizes, size, value => value, value => { size = value; show(); })], () => {
    const panels = fitsOfSize(known.filter(fit => fit.positions === Number(size)));
    return panels.length === 1 ? panels : [el('div', { class: 'grid-2' }, panels)];
  }), extra);
}

// From which number of positions on a part of the work is no smaller than exact attention's.
function savingsNote(cost, parts) {
  const sizes = numberKeys(cost);
  return parts.map(part => {
    const known = sizes.filter(size => isNumber(cost[size][part]));
    const none = known.find(size => cost[size][part] >= 1);
    if (!known.length) return '';
    if (none === undefined) return `${costName(part)}: each of these numbers of positions saves multiplications.`;
    return none === known[0] ? `${costName(part)}: none of these numbers of positions saves anything.` : `${costName(part)}: nothing is saved from ${count(Number(none))} positions on.`;
  }).filter(Boolean).join(' ');
}

function costBars(size, shares, parts, top) {
  return el('figure', { role: 'group', 'aria-label': `${size} positions` }, el('figcaption', {}, el('h3', {}, `${count(Number(size))} positions`)),
    el('dl', { class: 'bars cost-bars', style: `--whole:${100 / top}%` }, parts.flatMap((part, i) => {
      const share = shares[part], over = isNumber(share) && share >= 1;
      return [el('dt', {}, costName(part)), el('dd', { class: `bar${over ? ' over' : ''}` }, el('i', { style: `width:${isNumber(share) ? share / top * 100 : 0}%;--tint:var(--series-${i % 7 + 1})` })),
        el('dd', {}, isNumber(share) ? percent(share) : 'not recorded', over && el('span', { class: 'over-text' }, 'nothing saved'))];
    })));
}

function showCost() {
  const { cost } = run.spectra, sizes = numberKeys(cost);
  const parts = [...new Set(sizes.flatMap(size => Object.keys(cost[size])))];
  if (!parts.length) return mount('cost', absent('spectra.json', 'cost'));
  const top = Math.max(1.15, largest(sizes.flatMap(size => finiteOf(Object.values(cost[size]))), 0) * 1.02);
  mount('cost', panel('Multiplications against exact attention', `${COST_TEXTS} The mark is exact attention.`,
    el('div', { class: 'cost-groups' }, sizes.map(size => costBars(size, cost[size], parts, top))), el('p', { class: 'note' }, savingsNote(cost, parts))));
}
