// Speed and memory against length.

const SYMBOLS = ['circle', 'rect', 'triangle', 'diamond', 'emptyCircle', 'emptyRect', 'emptyTriangle'];
const METHODS = { sdpa: 'PyTorch SDPA', softmax: 'Softmax (Hedgerow)', softmax_attention: 'Softmax (Hedgerow)', hedgehog: 'Hedgehog', hedgehog_attention: 'Hedgehog',
  scaled_dot_product_attention: 'PyTorch SDPA', linear: 'Linear', entmax: 'Entmax', 'talking-heads': 'Talking heads', partial: 'Partial scores' };

function methodsOf(rows) {
  return [...new Set(rows.map(row => row.method))].map((method, i) => ({ method, name: METHODS[method] || method, tint: `--series-${i % 7 + 1}`, symbol: SYMBOLS[i % SYMBOLS.length] }));
}

function lengthOption(rows, methods, key, format) {
  const usable = rows.filter(row => isNumber(row[key]) && row[key] > 0);
  const lengths = [...new Set(usable.map(row => row.T))].sort((a, b) => a - b);
  return width => {
    const every = Math.ceil(lengths.length * 46 / Math.max(120, width - 60));
    const x = logAxis(lengths.length > 1 ? lengths : [lengths[0] / 2, lengths[0] * 2], count, lengths.filter((_, i) => (lengths.length - 1 - i) % every === 0));
    return {
      legend: legendStyle(methods.map(method => method.name)),
      grid: { left: 4, right: 18, top: width < 430 ? 58 : 36, bottom: 24, containLabel: true },
      xAxis: { ...x, splitLine: { show: false }, name: 'tokens', nameLocation: 'middle', nameGap: 28 },
      yAxis: logAxis(usable.map(row => row[key]), format),
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

function speedTable(rows, methods) {
  const sorted = [...rows].sort((a, b) => a.T - b.T || methods.findIndex(m => m.method === a.method) - methods.findIndex(m => m.method === b.method));
  const withError = rows.some(row => row.error !== null && row.error !== undefined);
  return panel('All measurements', 'Ratio is the time divided by that of PyTorch’s scaled_dot_product_attention in the same process; below 1 is faster.',
    table(['Tokens', 'Method', 'Time', 'Ratio', 'Peak memory', ...(withError ? ['Largest error'] : [])], sorted.map(row => [
      count(row.T), (methods.find(m => m.method === row.method) || {}).name, milliseconds(row.ms), short(row.ratio), bytes(row.peak_bytes), ...(withError ? [typeof row.error === 'number' ? short(row.error, 2) : plain(row.error)] : [])]), 'Time and memory of each attention at each length'));
}

function showSpeed() {
  const rows = (run.bench || {}).rows || [];
  if (!rows.length) return mount('speed', absent('bench.json', run.bench ? 'rows' : ''));
  const methods = methodsOf(rows);
  const values = key => [...new Set(rows.map(row => row[key] || ''))];
  const masks = values('mask'), steps = values('step');
  const chosen = { mask: masks[0], step: steps[0] };
  const content = el('div', { 'aria-live': 'off' });
  const show = () => {
    const own = rows.filter(row => (row.mask || '') === chosen.mask && (row.step || '') === chosen.step);
    for (let i = charts.length - 1; i >= 0; --i)
      if (content.contains(charts[i].node)) { if (charts[i].instance) charts[i].instance.dispose(); charts.splice(i, 1); }
    content.replaceChildren(own.length ? el('div', { class: 'grid-2' }, speedCharts(own, methods)) : absent('bench.json', 'measurement of this pair'), own.length ? el('div', { style: 'height:1rem' }) : '', own.length ? speedTable(own, methods) : '');
    charts.filter(entry => content.contains(entry.node)).forEach(drawChart);
  };
  const pick = (label, key, options) => options.length > 1 && choice(label, options.map(value => ({ value, name: value ? words(value) : 'Not named' })), chosen[key], value => { chosen[key] = value; show(); });
  mount('speed', el('div', { class: 'controls', style: 'margin-bottom:1rem' }, pick('Mask', 'mask', masks), pick('Measured', 'step', steps)), content);
  show();
}
