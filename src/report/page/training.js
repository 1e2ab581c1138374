// Training curves, one block per stage, and what became of the values of heads.

const STAGE_TEXTS = {
  distil: ['Distillation', 'Only the new attention’s own parameters learn; the rest of the model is frozen.'],
  recover: ['Recovery', 'The model’s weights learn to give the teacher’s embeddings and hidden states again.'],
  train: ['Training', 'The loss that the training loop minimises.'],
};

// Means over a window of about a fiftieth of the curve, so that the trend shows through the noise.
function smoothed(points) {
  const half = Math.floor(points.length / 100);
  return points.map(([x], i) => {
    const window = points.slice(Math.max(0, i - half), i + half + 1);
    return [x, mean(window.map(point => point[1]))];
  });
}

function curvesOf(lines, key) {
  const splits = new Map();
  for (const line of lines) {
    if (!isNumber(line[key])) continue;
    if (!splits.has(line.split)) splits.set(line.split, []);
    splits.get(line.split).push([line.step, line[key]]);
  }
  return [...splits].map(([split, points], i) => ({ split, points, tint: ['--teacher', '--model', '--series-3', '--series-4'][i % 4], dash: i ? [6, 3] : 'solid' }));
}

function lineOption(curves, log, format, name, width) {
  const all = curves.flatMap(curve => curve.points.map(point => point[1]));
  const logarithmic = log && smallest(all) > 0 && largest(all) > smallest(all);
  const put = value => (logarithmic ? Math.log10(value) : value);
  const steps = curves.flatMap(curve => curve.points.map(point => point[0]));
  const series = [];
  for (const curve of curves) {
    const tint = colour(curve.tint);
    const noisy = curve.points.length > 150;
    const shape = points => points.map(([x, y]) => [x, put(y)]);
    if (noisy) series.push({ type: 'line', name: `${curve.split} raw`, data: shape(curve.points), showSymbol: false, silent: true, lineStyle: { width: 1, color: tint, opacity: 0.28 }, itemStyle: { color: tint }, tooltip: { show: false } });
    series.push({ type: 'line', name: curve.split, data: shape(noisy ? smoothed(curve.points) : curve.points), showSymbol: curve.points.length < 40, symbolSize: 5,
      lineStyle: { width: 2, color: tint, type: curve.dash }, itemStyle: { color: tint } });
  }
  const y = logarithmic ? logAxis(all, value => format(value)) : { type: 'value', scale: true, ...axisStyle(), axisLabel: { ...axisStyle().axisLabel, formatter: value => format(value) } };
  const many = curves.length > 1;
  return {
    grid: { left: 4, right: 14, top: many ? legendRoom(curves.map(curve => curve.split), width) : 14, bottom: 22, containLabel: true },
    legend: many ? legendStyle(curves.map(curve => curve.split)) : undefined,
    xAxis: { type: 'value', ...axisStyle(), splitLine: { show: false }, min: smallest(steps), max: largest(steps), name: 'step', nameLocation: 'middle', nameGap: 26, axisLabel: { ...axisStyle().axisLabel, showMaxLabel: true } },
    yAxis: y,
    tooltip: { ...tooltipStyle(), trigger: 'axis', axisPointer: { lineStyle: { color: colour('--muted') } },
      formatter: items => tooltipCard(`Step ${count(items[0].value[0])}`, items.filter(item => !item.seriesName.endsWith(' raw'))
        .map(item => [many ? `${name}, ${item.seriesName}` : name, format(logarithmic ? 10 ** item.value[1] : item.value[1]), item.color])) },
    series,
  };
}

function curveChart(lines, key, title, log, format) {
  const curves = curvesOf(lines, key);
  if (!curves.length) return null;
  const ends = curves.map(curve => `${curve.split} from ${format(curve.points[0][1])} to ${format(curve.points[curve.points.length - 1][1])}`);
  return el('figure', { role: 'group', 'aria-label': title }, el('figcaption', { class: 'note' }, title),
    chart(`${title}: ${ends.join('; ')}`, width => lineOption(curves, log, format, title.split(' (')[0], width), '16rem'));
}

// About a dozen of the stage's steps, the first and the last among them.
function stageNumbers(lines) {
  const stride = Math.max(1, Math.floor((lines.length - 1) / 11));
  const rows = lines.filter((_, i) => i % stride === 0 || i === lines.length - 1);
  return numbers(['Step', 'Split', 'Loss', 'Learning rate', 'Gradient norm', 'Tokens per second'],
    rows.map(line => [count(line.step), line.split, short(line.loss, 4), short(line.lr), short(line.grad_norm), count(line.tokens_per_s)]), 'Some steps of this stage');
}

function stageFacts(lines) {
  const steps = lines.map(line => line.step);
  const facts = [['Steps', `${count(smallest(steps))} to ${count(largest(steps))}`]];
  const speed = median(lines.map(line => line.tokens_per_s));
  const peak = finiteOf(lines.map(line => line.peak_bytes));
  const time = finiteOf(lines.map(line => line.time_s));
  const norm = median(lines.map(line => line.grad_norm));
  if (isNumber(speed)) facts.push(['Tokens per second, median', count(speed)]);
  if (isNumber(norm)) facts.push(['Gradient norm, median', short(norm)]);
  if (peak.length) facts.push(['Peak memory', bytes(largest(peak))]);
  if (time.length) facts.push(['Time at the last step', seconds(largest(time))]);
  return el('dl', { class: 'facts' }, facts.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value))));
}

function showTraining() {
  if (!run.metrics || !run.metrics.length) return mount('training', absent('metrics.jsonl', run.metrics ? 'steps' : ''));
  const stages = new Map();
  for (const line of run.metrics) {
    if (!stages.has(line.stage)) stages.set(line.stage, []);
    stages.get(line.stage).push(line);
  }
  for (const [stage, lines] of stages) {
    const [title, text] = STAGE_TEXTS[stage] || [words(stage), ''];
    const loss = curveChart(lines, 'loss', 'Loss (logarithmic)', true, value => short(value));
    const rate = curveChart(lines, 'lr', 'Learning rate', false, value => short(value, 2));
    mount('training', panel(title, text, el('div', { class: 'grid-loss' }, loss, rate), stageFacts(lines), stageNumbers(lines)));
  }
}

function showHeadValues() {
  for (const { name, rows, panel } of trajectoryPanels()) mount('training', panel, valueHistogram(name, knownHeads(rows)));
}
