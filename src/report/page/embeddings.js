// Embedding similarity and retrieval.

function histogramOption(edges, stages, total, width) {
  const axis = axisStyle();
  // A step through every bin, closed at 0 on both sides.
  const outline = counts => [[edges[0], 0], ...counts.flatMap((n, i) => [[edges[i], n / total(counts)], [edges[i + 1], n / total(counts)]]), [edges[edges.length - 1], 0]];
  return {
    legend: legendStyle(stages.map(stage => stage.name)),
    grid: { left: 4, right: 16, top: legendRoom(stages.map(stage => stage.name), width), bottom: 24, containLabel: true },
    xAxis: { type: 'value', min: edges[0], max: edges[edges.length - 1], name: 'cosine to the teacher’s embedding', nameLocation: 'middle', nameGap: 28, ...axis, splitLine: { show: false } },
    yAxis: { type: 'value', ...axis, axisLabel: { ...axis.axisLabel, formatter: value => `${short(value * 100)} %` } },
    tooltip: { ...tooltipStyle(), trigger: 'axis', axisPointer: { lineStyle: { color: colour('--muted') } }, formatter: items => {
      const x = items[0].axisValue;
      const bin = Math.min(edges.length - 2, Math.max(0, edges.findIndex(edge => edge > x) - 1));
      return tooltipCard(`Cosine ${short(edges[bin], 4)} to ${short(edges[bin + 1], 4)}`, stages.map(stage => [stage.name, `${fixed(stage.counts[bin] / total(stage.counts) * 100, 1)} %`, colour(stage.colour)]));
    } },
    series: stages.map(stage => ({ type: 'line', name: stage.name, data: outline(stage.counts), showSymbol: false, lineStyle: { width: 2, color: colour(stage.colour), type: stage.dash }, itemStyle: { color: colour(stage.colour) }, areaStyle: { color: colour(stage.colour), opacity: 0.1 } })),
  };
}

function histogramPanel(histogram) {
  const stages = STAGES.filter(stage => Array.isArray(histogram[stage.key])).map(stage => ({ ...stage, counts: histogram[stage.key] }));
  if (!stages.length) return absent('analysis.json', 'similarity histogram');
  const total = counts => counts.reduce((a, b) => a + b, 0) || 1;
  const edges = histogram.edges;
  const centre = counts => counts.reduce((sum, n, i) => sum + n * (edges[i] + edges[i + 1]) / 2, 0) / total(counts);
  return panel('Similarity of sentence embeddings to the teacher’s', 'The share of held-out sentences at each cosine; the further right, the closer to the teacher.',
    chart(stages.map(stage => `${stage.name}: mean about ${fixed(centre(stage.counts), 3)}`).join('; '), width => histogramOption(edges, stages, total, width), '19rem'),
    numbers(['Cosine', ...stages.map(stage => stage.name)], edges.slice(0, -1).map((edge, i) => [`${short(edge, 4)} to ${short(edges[i + 1], 4)}`, ...stages.map(stage => count(stage.counts[i]))]), 'Sentences at each cosine'));
}

function agreementPanel() {
  const rows = ['nn_agreement', 'top10_overlap'].map(key => [key, stagesOf(stage => stage[key])]).filter(([, stages]) => stages.length);
  if (!rows.length) return absent('summary.json', 'retrieval agreement');
  return panel('Retrieval agreement', 'How often a search with the converted model returns what the teacher returns.',
    ...rows.map(([key, stages]) => el('div', { style: 'margin-top:0.9rem' }, el('h3', { style: 'margin-bottom:0.4rem' }, MEASURES[key].name),
      el('dl', { class: 'bars' }, stages.flatMap(stage => [el('dt', {}, stage.name), el('dd', { class: 'bar' }, el('i', { style: `width:${Math.min(1, Math.max(0, stage.value)) * 100}%;background:var(${stage.colour})` })), el('dd', {}, MEASURES[key].show(stage.value))])))));
}

function neighbourList(title, own, other) {
  return el('div', {}, el('h4', {}, title), el('ol', {}, own.map(text => {
    const shared = other.includes(text);
    return el('li', { class: shared ? '' : 'only', dir: 'auto' }, text, el('span', { class: 'mark' }, shared ? '✓' : '', el('span', { class: 'hidden' }, shared ? ' returned by both' : ' returned by this model only')));
  })));
}

function examplesPanel(examples) {
  const shown = el('div', { class: 'examples' });
  const more = el('button', { type: 'button', class: 'step', style: 'width:auto;padding:0 1rem;border-radius:9px;margin-top:1rem' }, `Show all ${examples.length}`);
  const show = list => shown.replaceChildren(...list.map(example => el('article', { class: 'example' }, el('p', { class: 'query', dir: 'auto' }, example.query),
    el('div', { class: 'sides' }, neighbourList('Nearest by the teacher', example.teacher, example.model), neighbourList('Nearest by the converted model', example.model, example.teacher)))));
  show(examples.slice(0, 2));
  more.addEventListener('click', () => { show(examples); more.remove(); });
  return panel('The same searches side by side', 'For each query the nearest other sentences; ✓ marks those that both models return, grey those that only one does.', shown, examples.length > 2 && more);
}

function showEmbeddings() {
  const embedding = (run.analysis || {}).embedding || {};
  const histogram = embedding.cosine_histogram ? histogramPanel(embedding.cosine_histogram) : absent('analysis.json', 'similarity histogram');
  mount('embeddings', el('div', { class: 'grid-loss' }, histogram, agreementPanel()),
    (embedding.neighbour_examples || []).length ? examplesPanel(embedding.neighbour_examples) : absent('analysis.json', 'neighbour examples'));
}
