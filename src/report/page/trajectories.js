// How the values of heads moved while the model trained: a curve for each head.

// Stages in order of time with the steps before and after them, counted over all stages.
function stageSpans() {
  const lengths = new Map();
  for (const { stage, step } of [...(run.metrics || []), ...(run.head_values || [])]) lengths.set(stage, Math.max(lengths.get(stage) || 0, step));
  let end = 0;
  return [...lengths].map(([stage, length]) => ({ stage, name: (STAGE_TEXTS[stage] || [words(stage)])[0], start: end, end: end += length }));
}

// [{name, points: [{at, rows}]}] of the values that moved; the last points stand at the end of training.
function trajectories(spans) {
  const starts = new Map(spans.map(span => [span.stage, span.start]));
  const tracks = new Map();
  for (const { stage, step, head_values: values } of run.head_values || []) {
    for (const [name, rows] of Object.entries(values)) {
      if (!tracks.has(name)) tracks.set(name, []);
      tracks.get(name).push({ at: starts.get(stage) + step, rows });
    }
  }
  const moved = points => points.some(({ rows }) => JSON.stringify(rows) !== JSON.stringify(points[0].rows));
  return [...tracks].filter(([, points]) => moved(points)).map(([name, points]) => {
    const last = points[points.length - 1], end = spans[spans.length - 1].end;
    return { name, points: last.at < end ? [...points, { at: end, rows: last.rows }] : points };
  });
}

// Round ends of an axis and the distance of its ticks.
function roundAxis(values) {
  const low = smallest(values), span = largest(values) - low || 0.1;
  const power = 10 ** Math.floor(Math.log10(span / 5));
  const interval = power * [1, 2, 5, 10].find(step => span / (step * power) <= 6);
  const decimals = Math.max(0, -Math.floor(Math.log10(interval) + 1e-9));
  return { min: Math.floor(low / interval + 1e-9) * interval, max: Math.ceil((low + span) / interval - 1e-9) * interval, interval, decimals };
}

const HEAD_TINTS = 7;  // --series-1 .. --series-7; then the same colours in other dashes
const MOST_NAMED = 16;  // curves that a tooltip lists one by one

function headLine(head) {
  return { color: colour(`--series-${head % HEAD_TINTS + 1}`), width: 2, type: ['solid', [7, 3], [2, 3], [10, 3, 2, 3]][Math.floor(head / HEAD_TINTS) % 4] };
}

// An upright line where a stage begins, with its name above the plot.
function stageMark({ start, name, end }, first, axis, pixelsPerStep) {
  const fits = (end - start) * pixelsPerStep > name.length * 7;
  return { type: 'line', name: '', data: [[start, axis.min], [start, axis.max]], symbol: 'none', silent: true, z: 1, lineStyle: { color: colour('--muted'), width: 1, type: [4, 4], opacity: first ? 0 : 1 },
    endLabel: { show: fits, formatter: name, color: colour('--muted'), fontSize: 12, align: 'left', verticalAlign: 'bottom', distance: 0, offset: [2, -5] } };
}

class Trajectory {
  constructor({ name, points }, spans, id) {
    Object.assign(this, { name, points, spans, layer: -1 });
    this.heads = knownHeads(points[points.length - 1].rows);
    this.layers = points[0].rows.length;
    this.axis = roundAxis(this.heads.flatMap(head => finiteOf(points.map(point => this.value(point, head)))));
    this.select = el('select', { onchange: event => this.show(Number(event.target.value)) }, el('option', { value: -1 }, 'All layers'),
      Array.from({ length: this.layers }, (_, layer) => el('option', { value: layer }, `${layer + 1} of ${this.layers}`)));
    this.controls = el('div', { class: 'controls' }, stepper('Layer', this.select, by => this.show((this.layer + 1 + by + this.layers + 1) % (this.layers + 1) - 1), `pick-layer-${id}`));
    this.summary = el('p', { class: 'note', role: 'status', 'aria-live': 'polite' });
    this.chart = chart(`${words(name)} of ${this.heads.length} heads over ${count(spans[spans.length - 1].end)} steps of training`, width => this.option(width), '22rem');
    this.legend = el('div', { class: 'legend under' });
    barRedraws.push(() => this.showLegend());
    this.show(-1);
  }

  value(point, { layer, head }) {
    return (point.rows[layer] || [])[head];
  }

  // Heads of the layer in view, or all.
  chosen() {
    return this.heads.filter(head => this.layer < 0 || head.layer === this.layer);
  }

  show(layer) {
    this.layer = layer;
    this.select.value = String(layer);
    const chosen = this.chosen(), ends = chosen.map(head => head.value);
    const starts = finiteOf(chosen.map(head => this.value(this.points[0], head)));
    const range = values => (fixed(smallest(values), 3) === fixed(largest(values), 3) ? fixed(values[0], 3) : `${fixed(smallest(values), 3)}–${fixed(largest(values), 3)}`);
    this.summary.textContent = chosen.length ? `${layer < 0 ? 'All layers' : `Layer ${layer + 1}`}: ${this.name} of ${count(chosen.length)} ${chosen.length === 1 ? 'head' : 'heads'} went from ${range(starts)} to ${range(ends)}.`
      : `Layer ${layer + 1} keeps no ${this.name}.`;
    this.showLegend();
    redraw(this.chart);
  }

  showLegend() {
    const layers = Array.from({ length: this.layers }, (_, layer) => layer);
    if (this.layer >= 0) return this.legend.replaceChildren('Faint: heads of the other layers');
    if (this.layers > 12) return this.legend.replaceChildren('Layer', colourBar('present', [[0, '1'], [1, String(this.layers)]]));
    return this.legend.replaceChildren(...layers.map(layer => el('span', {}, el('span', { class: 'key', style: `--key:${layerColour(layer, this.layers)}` }), `Layer ${layer + 1}`)));
  }

  series(head, focused) {
    const data = this.points.map(point => [point.at, this.value(point, head) ?? null]);
    const line = focused ? headLine(head.head) : this.layer < 0 ? { color: layerColour(head.layer, this.layers), width: this.heads.length > 150 ? 0.8 : 1.5 } : { color: colour('--line'), width: 1 };
    return { type: 'line', name: focused ? `Head ${head.head + 1}` : '', data, symbol: 'none', silent: true, z: focused ? 3 : 2, lineStyle: line, itemStyle: { color: line.color } };
  }

  // What a tooltip says of the curves in view at one point.
  readings(point) {
    const known = this.chosen().map(head => ({ ...head, now: this.value(point, head) })).filter(head => isNumber(head.now)).sort((a, b) => b.now - a.now);
    const values = list => list.map(head => head.now);
    if (this.layer >= 0 && known.length <= MOST_NAMED) return known.map(head => [`Head ${head.head + 1}`, fixed(head.now, 3), headLine(head.head).color]);
    if (this.layer < 0 && this.layers <= MOST_NAMED) {
      return Array.from({ length: this.layers }, (_, layer) => [layer, values(known.filter(head => head.layer === layer))]).filter(([, all]) => all.length)
        .map(([layer, all]) => [`Layer ${layer + 1}`, `${fixed(smallest(all), 3)} – ${fixed(largest(all), 3)}`, layerColour(layer, this.layers)]);
    }
    const [first, last] = [known[0], known[known.length - 1]];
    return known.length ? [['mean', fixed(mean(values(known)), 3)], [`highest, ${headName(first)}`, fixed(first.now, 3)], [`lowest, ${headName(last)}`, fixed(last.now, 3)]] : [];
  }

  title({ at }) {
    const span = this.spans.find(({ end }) => at <= end);
    return this.spans.length > 1 ? `${span.name}, step ${count(at - span.start)}` : `Step ${count(at)}`;
  }

  option(width) {
    const { axis, spans } = this, end = spans[spans.length - 1].end, style = axisStyle();
    const focused = this.layer < 0 ? [] : this.chosen();
    const names = focused.map(head => `Head ${head.head + 1}`);
    const many = spans.length > 1;
    const drawn = [...this.heads.filter(head => !focused.includes(head)).map(head => this.series(head, false)), ...focused.map(head => this.series(head, true))];
    return {
      legend: names.length ? legendStyle(names) : undefined,
      grid: { left: 4, right: 16, top: (names.length ? legendRoom(names, width) : 10) + (many ? 18 : 4), bottom: 24, containLabel: true },
      xAxis: { type: 'value', min: 0, max: end, name: 'step', nameLocation: 'middle', nameGap: 26, ...style, splitLine: { show: false }, axisLabel: { ...style.axisLabel, showMaxLabel: true } },
      yAxis: { type: 'value', min: axis.min, max: axis.max, interval: axis.interval, ...style, axisLabel: { ...style.axisLabel, formatter: value => fixed(value, axis.decimals) } },
      tooltip: { ...tooltipStyle(), trigger: 'axis', axisPointer: { lineStyle: { color: colour('--muted') } },
        formatter: items => { const point = this.points[items[0].dataIndex]; return tooltipCard(this.title(point), this.readings(point)); } },
      series: [...drawn, ...(many ? spans.map((span, i) => stageMark(span, i === 0, axis, width / end)) : [])],
    };
  }

  panel() {
    const at = step => this.points.filter(point => point.at <= step).pop() || this.points[0];
    const columns = [['Start', this.points[0]], ...this.spans.map(span => [this.spans.length > 1 ? `After ${span.name.toLowerCase()}` : 'End', at(span.end)])];
    return panel(`${words(this.name)} of each head over training`, `A curve for each head. ${(HEAD_VALUES[this.name] || {}).text || ''}`,
      this.controls, this.chart, this.legend, this.summary,
      numbers(['Head', ...columns.map(([heading]) => heading)], this.heads.map(head => [headName(head), ...columns.map(([, point]) => fixed(this.value(point, head), 4))]), `${words(this.name)} of each head over training`));
  }
}

// The panels of all values that moved, in order; none without head_values.jsonl.
function trajectoryPanels() {
  const spans = stageSpans();
  return trajectories(spans).map((track, i) => ({ name: track.name, rows: track.points[track.points.length - 1].rows, panel: new Trajectory(track, spans, i).panel() }));
}
