// Speed and memory against length.

const SYMBOLS = ['circle', 'rect', 'triangle', 'diamond', 'emptyCircle', 'emptyRect', 'emptyTriangle'];
const METHODS = { sdpa: 'PyTorch SDPA', softmax: 'Softmax (Hedgerow)', softmax_attention: 'Softmax (Hedgerow)', hedgehog: 'Hedgehog', hedgehog_attention: 'Hedgehog',
  scaled_dot_product_attention: 'PyTorch SDPA', linear: 'Linear', entmax: 'Entmax', talking_heads: 'Talking heads', talking_heads_entmax: 'Talking heads, entmax', 'talking-heads': 'Talking heads', partial_all_keys: 'Partial, all keys', partial_selected: 'Partial, selected keys', partial_layer: 'Partial, whole layer' };

// Rows of one method that differ in what it was given are curves of their own.
function variantOf(row) {
  return [row.method, isNumber(row.positions) && `P = ${row.positions}`, row.alpha && `alpha ${row.alpha}`].filter(Boolean).join('/');
}

function nameOf(variant) {
  const [method, ...given] = variant.split('/');
  return [METHODS[method] || method, ...given].join(', ');
}

function methodsOf(rows) {
  return [...new Set(rows.map(row => row.method))].map((method, i) => ({ method, name: nameOf(method), tint: `--series-${i % 7 + 1}`, symbol: SYMBOLS[i % SYMBOLS.length] }));
}

// 1, 4, 16 .. KiB within the values: readable sizes instead of powers of ten.
function byteTicks(values) {
  const low = smallest(values), high = largest(values), out = [];
  const factor = high / low > 4096 ? 16 : high / low > 16 ? 4 : 2;
  for (let size = 2 ** Math.floor(Math.log2(low)); size <= high * 1.1; size *= factor) if (size >= low * 0.9) out.push(size);
  return out;
}

function lengthOption(rows, methods, key, format) {
  const usable = rows.filter(row => isNumber(row[key]) && row[key] > 0);
  const lengths = [...new Set(usable.map(row => row.T))].sort((a, b) => a - b);
  return width => {
    const every = Math.ceil(lengths.length * 46 / Math.max(120, width - 60));
    const x = logAxis(lengths.length > 1 ? lengths : [lengths[0] / 2, lengths[0] * 2], count, lengths.filter((_, i) => (lengths.length - 1 - i) % every === 0));
    return {
      legend: legendStyle(methods.map(method => method.name)),
      grid: { left: 4, right: 18, top: legendRoom(methods.map(method => method.name), width), bottom: 24, containLabel: true },
      xAxis: { ...x, splitLine: { show: false }, name: 'tokens', nameLocation: 'middle', nameGap: 28 },
      yAxis: logAxis(usable.map(row => row[key]), format, key === 'peak_bytes' ? byteTicks(usable.map(row => row[key])) : null),
      tooltip: { ...tooltipStyle(), trigger: 'axis', axisPointer: { lineStyle: { color: colour('--muted') } },
        formatter: items => tooltipCard(`${count(Math.round(10 ** items[0].value[0]))} tokens`, items.map(item => [item.seriesName, format(10 ** item.value[1]), item.color])) },
      series: methods.map(method => ({ type: 'line', name: method.name, symbol: method.symbol, symbolSize: 8, lineStyle: { width: 2 }, color: colour(method.tint),
        data: usable.filter(row => row.method === method.method).sort((a, b) => a.T - b.T).map(row => [Math.log10(row.T), Math.log10(row[key])]) })),
    };
  };
}

function speedCharts(rows, methods) {
  const part = (key, title, sentence, format) => {
    const usable = rows.filter(row => isNumber(row[key]) && row[key] > 0);
    if (!usable.length) return panel(title, sentence, absent('bench.json', key));
    const present = methods.filter(method => usable.some(row => row.method === method.method));
    const ends = present.map(method => { const own = usable.filter(row => row.method === method.method).sort((a, b) => a.T - b.T).pop(); return `${method.name} ${format(own[key])} at ${count(own.T)} tokens`; });
    return panel(title, sentence, chart(`${title}: ${ends.join('; ')}`, lengthOption(rows, present, key, format), '20rem'));
  };
  return [part('ms', 'Time', 'Both axes are logarithmic: a straight line that climbs twice as steeply grows with the square of the length.', milliseconds),
    part('peak_bytes', 'Peak memory', 'Scratch and results that one call needs beyond its inputs; lower is better.', bytes)];
}

// Rows that name their baseline's time give it a row of its own where it has none.
function withBaseline(rows) {
  const key = row => JSON.stringify([row.mask || '', row.step || '', shapeOf(row), row.T]);
  const have = new Set(rows.filter(row => row.method === 'sdpa').map(key));
  const out = [];
  for (const row of rows) {
    if (isNumber(row.sdpa_ms) && !have.has(key(row))) {
      have.add(key(row));
      out.push({ ...row, method: 'sdpa', ms: row.sdpa_ms, ratio: 1, peak_bytes: row.sdpa_peak_bytes ?? null, error: null });
    }
  }
  return [...out, ...rows];
}

// Heads and their width, where rows name them: charts never mix shapes.
function shapeOf(row) {
  return isNumber(row.heads) && isNumber(row.head_dim) ? `${row.heads} × ${row.head_dim}` : '';
}

// One row per length, three columns per method.
function speedTable(rows, methods) {
  const present = methods.filter(method => rows.some(row => row.method === method.method));
  const lengths = [...new Set(rows.map(row => row.T))].sort((a, b) => a - b);
  const cells = length => present.flatMap(method => {
    const row = rows.find(row => row.T === length && row.method === method.method) || {};
    return [[milliseconds(row.ms), 'edge'], [short(row.ratio, 2), ''], [bytes(row.peak_bytes), '']];
  });
  const caption = 'Time, ratio and peak memory of each attention at each length';
  const errors = finiteOf(rows.map(row => row.error));
  const texts = [...new Set(rows.map(row => row.error).filter(error => typeof error === 'string' && error))];
  return panel('All measurements', 'Ratio is the time divided by that of PyTorch’s scaled_dot_product_attention in the same process; below 1 is faster.',
    el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption }, el('table', {}, el('caption', { class: 'hidden' }, caption),
      el('thead', {}, el('tr', {}, el('th', { scope: 'col', rowspan: 2 }, 'Tokens'), present.map(method => el('th', { scope: 'colgroup', colspan: 3, class: 'edge' }, el('span', { class: 'key', style: `--key:var(${method.tint})` }), method.name))),
        el('tr', {}, present.flatMap(() => [['Time', 'edge'], ['Ratio', ''], ['Memory', '']].map(([text, edge]) => el('th', { scope: 'col', class: edge, style: 'text-align:right' }, text))))),
      el('tbody', {}, lengths.map(length => el('tr', {}, el('th', { scope: 'row' }, count(length)), cells(length).map(([text, edge]) => el('td', { class: edge }, text))))))),
    (errors.length > 0 || texts.length > 0) && el('p', { class: 'note', style: 'margin-top:0.75rem' },
      errors.length ? `Largest relative error of any of these results against the reference: ${short(largest(errors), 2)}.` : '', texts.join(' ')));
}

function decodeNote() {
  const decode = (run.bench || {}).decode || {};
  if (!isNumber(decode.kernel_us)) return null;
  return el('p', { class: 'note' }, `One generated token, updating the state in place: ${short(decode.kernel_us)} µs` +
    (isNumber(decode.heads) && isNumber(decode.head_dim) ? ` for ${decode.heads} heads of ${decode.head_dim}` : '') +
    (isNumber(decode.operator_us) ? `, ${short(decode.operator_us)} µs through the operator.` : '.'));
}

function showSpeed() {
  const rows = withBaseline((run.bench || {}).rows || []).map(row => ({ ...row, method: variantOf(row), shape: shapeOf(row) }));
  if (!rows.length) return mount('speed', absent('bench.json', run.bench ? 'rows' : ''));
  const methods = methodsOf(rows);
  const values = key => [...new Set(rows.map(row => row[key] || ''))];
  const masks = values('mask'), steps = values('step'), shapes = values('shape');
  const chosen = { mask: masks[0], step: steps[0], shape: shapes[0] };
  const pick = (label, key, options, show) => options.length > 1 && choice(label, options.map(value => ({ value, name: value ? words(value) : 'Not named' })), chosen[key], value => { chosen[key] = value; show(); });
  mount('speed', ...controlled(show => [pick('Mask', 'mask', masks, show), pick('Measured', 'step', steps, show), pick('Heads × width', 'shape', shapes, show)], () => {
    const own = rows.filter(row => (row.mask || '') === chosen.mask && (row.step || '') === chosen.step && row.shape === chosen.shape);
    return own.length ? [el('div', { class: 'grid-2' }, speedCharts(own, methods)), speedTable(own, methods)] : [absent('bench.json', 'measurement of this combination')];
  }), decodeNote());
}
