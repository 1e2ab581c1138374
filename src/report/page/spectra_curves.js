// Spectra of the rows: curves, the dimensions that hold most of the variance, the same per head.

// Eigenvalues as shares of their sum, nothing below 0: rounding leaves small negative ones.
function eigenShares(values, total) {
  const sum = isNumber(total) ? total : finiteOf(values || []).reduce((a, b) => a + Math.max(0, b), 0);
  return sum > 0 && isNumber(values[0]) ? values.map(value => (isNumber(value) ? Math.max(0, value) / sum : null)) : null;
}

// What the first k hold together, up to the first that is not known.
function heldShares(shares) {
  let sum = 0;
  return shares.map(share => { sum = isNumber(share) && sum !== null ? sum + share : null; return sum; });
}

// Curves of all layers over the number of dimensions, those of all layers together at the end.
function spectrumLines(eigenvalues, shared, held, totals = []) {
  const layers = eigenvalues.length;
  const line = (name, values, total, style) => {
    const shares = values && eigenShares(values, total);
    return shares && { name, points: (held ? heldShares(shares) : shares).map((share, i) => [i + 1, share]), ...style };
  };
  return [...eigenvalues.map((values, layer) => line(`Layer ${layer + 1}`, values, totals[layer], { tint: () => layerColour(layer, layers) })),
    layers > 1 && line('All layers together', shared, undefined, { tint: () => colour('--ink'), dash: [7, 4], front: true })].filter(Boolean);
}

const HELD_MARKS = [0.9, 0.95, 0.99];
const LEAST_SHARE = 1e-6;  // eigenvalues below this share of their sum are not drawn

function spectrumPanel(title, sentence, lines, held, what, extra) {
  const option = width => linesOption(width, lines, {
    x: { name: what, log: true, format: count },
    y: held ? { format: percentTick, show: percent, top: 1 } : { log: true, format: percentTick, low: LEAST_SHARE },
    marks: held ? HELD_MARKS : [], heading: k => (held ? `First ${count(k)}` : `Number ${count(k)}`), legend: false,
  });
  const longest = largest(lines.map(line => line.points.length), 0);
  const told = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024].filter(k => k <= longest);
  const show = value => (held || !isNumber(value) ? percent(value) : percentTick(value));
  const at = (line, k) => show((line.points[k - 1] || [])[1]);
  const middle = told[told.length >> 1];
  return panel(title, sentence, chart(`${title}, ${held ? `the first ${middle}` : `number ${middle}`}: ${lines.map(line => `${line.name} ${at(line, middle)}`).join(', ')}`, option, '22rem'), extra,
    numbers([words(what), ...lines.map(line => line.name)], told.map(k => [count(k), ...lines.map(line => at(line, k))]), title));
}

function cellBar(value, top) {
  return isNumber(value) ? el('span', { class: 'cell-bar', style: `--share:${Math.min(1, Math.max(0, value / top))}` }, el('i', { 'aria-hidden': 'true' }), el('b', {}, count(value))) : '–';
}

function dimensionTable({ k, shared_k: shared }, n) {
  const shares = numberKeys(k), layers = spectraLayers();
  const top = largest(finiteOf(shares.flatMap(share => [...k[share], (shared || {})[share]])), 1);
  if (!shares.length) return absent('spectra.json', 'numbers of dimensions');
  const row = (name, read) => [name, ...shares.map(share => cellBar(read(share), top))];
  const rows = [...Array.from({ length: layers }, (_, layer) => row(`Layer ${layer + 1}`, share => k[share][layer])),
    ...(layers > 1 && shared ? [row('All layers together', share => shared[share])] : [])];
  return panel('Dimensions that are needed', `Directions, of ${count(n)}, that hold so much of the variance.`, table(['', ...shares.map(shareName)], rows, 'Number of directions that hold a share of the variance, per layer'));
}

function headDimensions({ k_by_head: byHead }, share) {
  const rows = (byHead || {})[share];
  const values = rows ? knownHeads(rows).map(head => head.value) : [];
  if (!values.length) return absent('spectra.json', 'dimensions of single heads');
  return heatPanel(`Dimensions of each head for ${shareName(share)}`, 'Each head with directions of its own.', rows,
    { low: smallest(values), top: Math.max(largest(values), smallest(values) + 1), unit: 'directions', show: count, whole: true });
}

function showSpectra() {
  const { forms, n } = run.spectra, names = formNames(forms);
  if (!names.length) return mount('spectra', absent('spectra.json', 'forms'));
  const byHead = numberKeys(names.reduce((all, name) => ({ ...all, ...forms[name].k_by_head }), {}));
  const chosen = { form: names[0], curve: 'held', share: byHead[0] };
  const set = (key, show) => value => { chosen[key] = value; show(); };
  mount('spectra', ...controlled(show => [
    keyChoice('Rows of', names, chosen.form, formName, set('form', show)),
    choice('Curve', [{ value: 'held', name: 'Variance held' }, { value: 'eigen', name: 'Eigenvalues' }], chosen.curve, set('curve', show)),
    keyChoice('Single heads', byHead, chosen.share, shareName, set('share', show)),
  ], () => {
    const form = forms[chosen.form], held = chosen.curve === 'held';
    const lines = spectrumLines(form.eigenvalues, form.shared_eigenvalues, held);
    const text = (FORMS[chosen.form] || {}).text;
    const sentence = `${text ? `${text} ` : ''}${held ? 'The share of their variance in the first so many directions; dashed: 90, 95 and 99 %.' : 'The share of their variance in each direction, strongest first; both axes are logarithmic.'}`;
    return [lines.length ? spectrumPanel(held ? 'Variance held by the strongest directions' : 'Variance of each direction', sentence, lines, held, 'directions', layerLegend(spectraLayers(), lines.some(line => line.front) && 'all layers together'))
      : absent('spectra.json', 'eigenvalues of this form'),
    el('div', { class: 'grid-2' }, dimensionTable(form, n), headDimensions(form, chosen.share))];
  }));
}
