// KL and entropy per layer and head.

function matrixStages(group) {
  const known = STAGES.filter(stage => Array.isArray(group[stage.key])).map(stage => ({ ...stage, rows: group[stage.key] }));
  const others = Object.keys(group).filter(key => Array.isArray(group[key]) && !STAGES.some(stage => stage.key === key));
  return [...known, ...others.map(key => ({ key, name: words(key), rows: group[key] }))];
}

function headRows(rows) {
  return rows.flatMap((row, layer) => row.map((value, head) => ({ layer, head, value })));
}

// Colour runs with the square root, so that small differences near 0 show; from `low`, where that is
// given, it runs evenly. `column` names what stands beside each other, `label` writes into cells that
// are wide enough.
function heatOption(rows, top, unit, width, { low = null, column = 'head', show = value => fixed(value, 3), label = value => (value < 10 ? fixed(value, 2) : short(value, 2)) } = {}) {
  const shareOf = value => (low === null ? Math.sqrt(Math.max(0, value) / top) : (value - low) / (top - low || 1));
  const heads = largest(rows.map(row => row.length), 0);
  const cell = (width - 40) / Math.max(1, heads);
  const dark = isDark();
  const cells = headRows(rows).filter(cell => isNumber(cell.value));
  const axis = axisStyle();
  const every = room => ({ ...axis.axisLabel, interval: Math.max(0, Math.ceil(room / cell) - 1), hideOverlap: false });
  return {
    grid: { left: 30, right: 4, top: 4, bottom: 34 },
    xAxis: { type: 'category', data: Array.from({ length: heads }, (_, i) => String(i + 1)), name: column, nameLocation: 'middle', nameGap: 22, ...axis, axisLabel: every(18), splitLine: { show: false }, axisLine: { show: false } },
    yAxis: { type: 'category', inverse: true, data: rows.map((_, i) => String(i + 1)), ...axis, splitLine: { show: false }, axisLine: { show: false } },
    visualMap: { show: false, type: 'continuous', min: 0, max: 1, dimension: 2, inRange: { color: ramp('sequential') } },
    tooltip: { ...tooltipStyle(), formatter: item => tooltipCard(`Layer ${item.data.value[1] + 1}, ${column} ${item.data.value[0] + 1}`, [[unit, show(item.data.real)]]) },
    series: [{ type: 'heatmap', data: cells.map(({ layer, head, value }) => {
      const share = shareOf(value);
      return { value: [head, layer, share], real: value,
        label: { show: cell >= 34, color: share > 0.55 ? (dark ? '#10130f' : '#ffffff') : (dark ? '#dfe5dc' : '#2a302c'), fontSize: 10.5, formatter: () => label(value) } };
    }), itemStyle: { borderColor: colour('--surface'), borderWidth: cell > 12 ? 1.5 : 0.5, borderRadius: 2 }, emphasis: { itemStyle: { borderColor: colour('--ink') } } }],
  };
}

function heatHeight(rows) {
  return `${Math.min(34, Math.max(9, rows.length * 1.9 + 2.6))}rem`;
}

function klPanel(kl) {
  const stages = matrixStages(kl).filter(stage => finiteOf(stage.rows.flat()).length);
  const all = stages.flatMap(stage => finiteOf(stage.rows.flat()));
  if (!all.length) return absent('analysis.json', 'KL per head');
  const top = largest(all, 0) || 1;
  const bar = el('div', { class: 'legend' });
  barRedraws.push(() => bar.replaceChildren('KL in nats', colourBar('sequential', [[0, '0'], [0.5, fixed(top / 4, 2)], [1, fixed(top, 2)]])));
  const length = isNumber(kl.length) ? ` on texts of ${count(kl.length)} tokens` : '';
  const grid = stages.map(stage => {
    const average = mean(stage.rows.flat());
    const worst = largest(finiteOf(stage.rows.flat()), 0);
    return el('figure', { role: 'group', 'aria-label': stage.name }, el('figcaption', {}, el('h3', {}, stage.name), el('p', { class: 'note' }, `mean ${fixed(average, 3)}, largest ${fixed(worst, 3)}`)),
      chart(`${stage.name}: KL per layer and head, mean ${fixed(average, 3)}, largest ${fixed(worst, 3)} nats`, width => heatOption(stage.rows, top, 'KL, nats', width), heatHeight(stage.rows)));
  });
  return panel('Distance from softmax, per layer and head', `KL(softmax ‖ converted) of the attention rows${length}; pale is close to softmax. All pictures share one colour scale.`,
    el('div', { class: stages.length === 3 || stages.length > 4 ? 'grid-3' : 'grid-2' }, grid), bar,
    numbers(['Layer and head', ...stages.map(stage => stage.name)],
      headRows(stages[0].rows).map(({ layer, head }) => [`Layer ${layer + 1}, head ${head + 1}`, ...stages.map(stage => fixed(stage.rows[layer][head], 4))]), 'KL per layer and head in nats'));
}

function layersPanel(kl) {
  const stages = matrixStages(kl).map(stage => ({ ...stage, means: stage.rows.map(mean) })).filter(stage => finiteOf(stage.means).length);
  if (!stages.length) return null;
  const all = finiteOf(stages.flatMap(stage => stage.means));
  const log = smallest(all) > 0 && largest(all) > smallest(all);
  const tint = (stage, i) => colour(stage.colour || `--series-${i % 7 + 1}`);
  const names = stages.map(stage => stage.name);
  const option = width => ({
    legend: legendStyle(names),
    grid: { left: 4, right: 16, top: legendRoom(names, width), bottom: 26, containLabel: true },
    xAxis: { type: 'category', data: stages[0].means.map((_, i) => String(i + 1)), name: 'layer', nameLocation: 'middle', nameGap: 28, ...axisStyle(), splitLine: { show: false } },
    yAxis: log ? logAxis(all, value => short(value, 2)) : { type: 'value', min: 0, ...axisStyle() },
    tooltip: { ...tooltipStyle(), trigger: 'axis', axisPointer: { lineStyle: { color: colour('--muted') } },
      formatter: items => tooltipCard(`Layer ${items[0].axisValue}`, items.map(item => [item.seriesName, fixed(log ? 10 ** item.value : item.value, 3), item.color])) },
    series: stages.map((stage, i) => ({ type: 'line', name: stage.name, symbol: stage.symbol || 'circle', symbolSize: 8, color: tint(stage, i), lineStyle: { width: 2, type: stage.dash || 'solid' },
      data: stage.means.map(value => (isNumber(value) ? (log ? Math.log10(Math.max(value, smallest(all))) : value) : null)) })),
  });
  return panel('Mean distance by layer', 'The same distances averaged over the heads of each layer (logarithmic); lower is closer to softmax.',
    chart(stages.map(stage => `${stage.name}: ${stage.means.map(value => fixed(value, 2)).join(', ')}`).join('; '), option, '20rem'),
    numbers(['Layer', ...names], stages[0].means.map((_, layer) => [`Layer ${layer + 1}`, ...stages.map(stage => fixed(stage.means[layer], 4))]), 'Mean KL per layer in nats'));
}

function entropyPanel(entropy) {
  const { teacher, model } = entropy;
  if (!Array.isArray(teacher) || !Array.isArray(model)) return null;
  const heads = headRows(teacher).map(({ layer, head, value }) => ({ layer, head, x: value, y: model[layer][head] })).filter(head => isNumber(head.x) && isNumber(head.y));
  if (!heads.length) return null;
  const top = largest(heads.flatMap(head => [head.x, head.y]), 0) * 1.05 || 1;
  const layers = teacher.length;
  const option = () => ({
    grid: { left: 22, right: 16, top: 14, bottom: 26, containLabel: true },
    xAxis: { type: 'value', min: 0, max: top, name: 'teacher, nats', nameLocation: 'middle', nameGap: 28, ...axisStyle(), axisLabel: { ...axisStyle().axisLabel, showMaxLabel: false } },
    yAxis: { type: 'value', min: 0, max: top, name: 'converted, nats', nameLocation: 'middle', nameGap: 28, ...axisStyle(), axisLabel: { ...axisStyle().axisLabel, showMaxLabel: false } },
    visualMap: layers > 1 ? { show: false, type: 'continuous', min: -0.6 * layers, max: layers - 1, dimension: 2, seriesIndex: 1, inRange: { color: ramp('sequential') } } : undefined,
    tooltip: { ...tooltipStyle(), formatter: item => (item.seriesIndex === 1 ? tooltipCard(`Layer ${item.value[2] + 1}, head ${item.value[3] + 1}`, [['teacher', fixed(item.value[0], 3)], ['converted', fixed(item.value[1], 3)]]) : '') },
    series: [
      { type: 'line', data: [[0, 0], [top, top]], showSymbol: false, silent: true, lineStyle: { color: colour('--muted'), width: 1, type: [4, 4] } },
      { type: 'scatter', data: heads.map(head => [head.x, head.y, head.layer, head.head]), symbolSize: 10, itemStyle: { borderColor: colour('--surface'), borderWidth: 1, opacity: 0.95 } },
    ],
  });
  return panel('Spread of attention, teacher against converted', 'Each dot is a head; on the dashed line a head spreads its weight as widely as before, above it more widely. Stronger colour is a later layer.',
    chart(`Entropy of ${heads.length} heads: teacher mean ${fixed(mean(heads.map(head => head.x)), 2)}, converted mean ${fixed(mean(heads.map(head => head.y)), 2)} nats`, option, '20rem'),
    numbers(['Layer and head', 'Teacher', 'Converted'], heads.map(head => [`Layer ${head.layer + 1}, head ${head.head + 1}`, fixed(head.x, 4), fixed(head.y, 4)]), 'Entropy per layer and head in nats'));
}

function showFidelity() {
  if (!run.analysis) return mount('fidelity', absent('analysis.json'));
  const { kl, entropy } = run.analysis;
  mount('fidelity', kl ? klPanel(kl) : absent('analysis.json', 'KL per head'),
    el('div', { class: 'grid-2' }, kl && layersPanel(kl), (entropy && entropyPanel(entropy)) || absent('analysis.json', 'entropy')),
    ...headMatrixPanels(),
    el('p', { class: 'note' }, 'Layers and heads are counted from 1 in this page.'));
}
