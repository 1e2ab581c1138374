// How heads are mixed: every projection of every layer as a small picture.

const HEAD_MATRICES = {
  logits_proj: { title: 'Heads mixed before the softmax', from: 'key head', to: 'softmax head' },
  weights_proj: { title: 'Heads mixed after the softmax', from: 'softmax head', to: 'value head' },
};

function plus(value, decimals) {
  return (value > 0 ? '+' : '') + fixed(value, decimals);
}

class HeadMatrix {
  constructor(name, layers) {
    const texts = HEAD_MATRICES[name] || { title: words(name), from: 'head', to: 'head' };
    Object.assign(this, texts, { figures: ((run.analysis.head_mixing || {})[name]) || {}, change: false });
    this.layers = layers.flatMap((rows, layer) => (rows ? [{ layer, rows, width: rows[0].length }] : []));
    this.square = this.layers.every(({ rows, width }) => rows.length === width);
    this.bar = el('div', { class: 'legend under' });
    barRedraws.push(() => this.showBar());
  }

  // [{from, to, value}] of one layer, as it is or less the identity.
  cells({ rows }) {
    return rows.flatMap((row, from) => row.map((value, to) => ({ from, to, value: isNumber(value) ? value - (this.change && from === to ? 1 : 0) : null }))).filter(cell => isNumber(cell.value));
  }

  top() {
    return largest(this.layers.flatMap(layer => this.cells(layer).map(cell => Math.abs(cell.value))), 0) || 1;
  }

  showBar() {
    const top = this.top();
    this.bar.replaceChildren(this.change ? 'Weight less the identity' : 'Weight',
      colourBar('diverging', [[0, plus(-top, 2)], [0.25, plus(-top / 4, 2)], [0.5, '0'], [0.75, plus(top / 4, 2)], [1, plus(top, 2)]]));
  }

  option(layer, width) {
    const { rows, width: heads } = layer, top = this.top();
    const cell = (width - 24) / heads, axis = axisStyle();
    const heading = number => ({ type: 'category', data: Array.from({ length: number }, (_, i) => String(i + 1)), ...axis, axisLine: { show: false }, splitLine: { show: false },
      axisLabel: { ...axis.axisLabel, fontSize: 11, margin: 4, hideOverlap: false, interval: Math.max(0, Math.ceil(17 / cell) - 1) } });
    return {
      grid: { left: 22, right: 2, top: 2, bottom: 20 },
      xAxis: heading(heads),
      yAxis: { ...heading(rows.length), inverse: true },
      visualMap: { show: false, type: 'continuous', min: -1, max: 1, dimension: 2, inRange: { color: ramp('diverging') } },
      tooltip: { ...tooltipStyle(), formatter: ({ data }) => tooltipCard(`Layer ${layer.layer + 1}`, [[`${this.from} ${data.from + 1} → ${this.to} ${data.to + 1}`, plus(data.real, 4)]]) },
      series: [{ type: 'heatmap', data: this.cells(layer).map(({ from, to, value }) => ({ value: [to, from, Math.sign(value) * Math.sqrt(Math.abs(value) / top)], real: value, from, to })),
        itemStyle: { borderColor: colour('--surface'), borderWidth: cell > 10 ? 1 : 0 }, emphasis: { itemStyle: { borderColor: colour('--ink'), borderWidth: 1.5 } } }],
    };
  }

  // What the picture of a layer says in words.
  reading({ layer, rows, width }) {
    const { effective_rank: rank, identity_distance: distance } = this.figures;
    const known = list => Array.isArray(list) && isNumber(list[layer]);
    return [known(rank) && `effective rank ${fixed(rank[layer], 2)} of ${Math.min(rows.length, width)}`, known(distance) && `${fixed(distance[layer], 3)} from the identity`].filter(Boolean).join(', ');
  }

  strongest(layer) {
    const apart = this.cells(layer).filter(cell => !this.square || cell.from !== cell.to).sort((a, b) => Math.abs(b.value) - Math.abs(a.value))[0];
    return apart ? `; strongest ${this.square ? 'exchange' : 'weight'} ${this.from} ${apart.from + 1} to ${this.to} ${apart.to + 1}: ${plus(apart.value, 3)}` : '';
  }

  picture(layer) {
    const name = `Layer ${layer.layer + 1}`, reading = this.reading(layer);
    const drawn = chart(`${name}: ${layer.rows.length} by ${layer.width} heads${reading ? `, ${reading}` : ''}${this.strongest(layer)}`, width => this.option(layer, width),
      `auto;min-height:4.5rem;aspect-ratio:${layer.width} / ${layer.rows.length}`);
    return { chart: drawn, node: el('figure', { role: 'group', 'aria-label': name }, el('figcaption', {}, el('h3', {}, name), reading && el('p', { class: 'note' }, words(reading))), drawn) };
  }

  panel() {
    const pictures = this.layers.map(layer => this.picture(layer));
    const most = largest(this.layers.map(layer => layer.width), 0);
    const show = value => { this.change = value === 'change'; this.showBar(); pictures.forEach(picture => redraw(picture.chart)); };
    return panel(this.title, `Row: the ${this.from} that gives; column: the ${this.to} that takes. ${this.square ? 'A diagonal of ones exchanges nothing. ' : ''}All layers share one colour scale, which runs with the square root.`,
      this.square && el('div', { class: 'controls' }, choice('Show', [{ value: 'whole', name: 'Projection' }, { value: 'change', name: 'Change from the identity' }], 'whole', show)),
      el('div', { class: 'grid-small' }, pictures.map(picture => picture.node)), this.bar,
      numbers(['Layer and head', ...Array.from({ length: most }, (_, to) => `to ${to + 1}`)],
        this.layers.flatMap(({ layer, rows }) => rows.map((row, from) => [headName({ layer, head: from }), ...Array.from({ length: most }, (_, to) => fixed(row[to], 4))])), `${this.title}: weights from each ${this.from} to each ${this.to}`));
  }
}

function headMatrixPanels() {
  return Object.entries(run.analysis.head_matrices || {}).map(([name, layers]) => new HeadMatrix(name, layers)).filter(matrix => matrix.layers.length).map(matrix => matrix.panel());
}
