// Headline numbers.

const MEASURES = {
  embedding_cosine: { name: 'Embedding cosine', show: v => fixed(v, 3), top: 1,
    text: 'Cosine between the converted model’s sentence embeddings and the teacher’s; 1 is identical.' },
  nn_agreement: { name: 'Same nearest neighbour', show: v => `${fixed(v * 100, 1)} %`, top: 1,
    text: 'Share of held-out sentences whose nearest other sentence is the one that the teacher finds.' },
  top10_overlap: { name: 'Top-10 overlap', show: v => `${fixed(v * 100, 1)} %`, top: 1,
    text: 'Share of the teacher’s ten nearest sentences that the converted model also returns.' },
  kl_own_heads: { name: 'KL with its own heads', show: v => fixed(v, 3), unit: 'nats',
    text: 'Distance of attention rows from the teacher’s when each model uses its own queries and keys; grows as recovery moves the weights.' },
  perplexity: { name: 'Perplexity', show: v => short(v, 4),
    text: 'How surprised the model is by held-out text; lower is better.' },
  kl_next_token: { name: 'KL of the next token', show: v => fixed(v, 3), unit: 'nats',
    text: 'Distance of the predicted next-token distribution from the teacher’s; 0 is identical.' },
};

function card(measure, stages) {
  const values = stages.map(stage => stage.value);
  const top = measure.top || largest(finiteOf(values), 0) || 1;
  const place = value => `${Math.min(1, Math.max(0, value / top)) * 100}%`;
  const last = stages[stages.length - 1];
  const first = stages[0];
  const ends = [first.value, last.value].map(value => Math.min(1, Math.max(0, value / top)) * 100);
  const way = stages.length > 1 && el('span', { class: 'way', style: `left:${Math.min(...ends)}%;width:${Math.abs(ends[1] - ends[0])}%` });
  return el('div', { class: 'card' }, el('h3', {}, measure.name),
    el('p', { class: 'figure-value' }, measure.show(last.value), measure.unit && el('small', {}, measure.unit)),
    el('div', { class: 'track', 'aria-hidden': 'true' }, way,
      stages.map(stage => el('span', { class: `dot ${stage.key}`, style: `left:${place(stage.value)}` }))),
    el('dl', { class: 'stages' }, stages.slice(0, -1).map(stage =>
      el('div', {}, el('dt', {}, stage.name), el('dd', {}, measure.show(stage.value))))),
    el('p', { class: 'note' }, measure.text));
}

function stagesOf(read) {
  return STAGES.map(stage => ({ ...stage, value: read((run.summary || {})[stage.key] || {}) }))
    .filter(stage => isNumber(stage.value));
}

function klLengths() {
  const lengths = new Set();
  for (const stage of STAGES) {
    const kl = ((run.summary || {})[stage.key] || {}).kl;
    for (const length of Object.keys(kl && typeof kl === 'object' ? kl : {})) lengths.add(length);
  }
  return [...lengths].sort((a, b) => Number(a) - Number(b));
}

function klCards() {
  return klLengths().map(length => {
    const stages = stagesOf(stage => (stage.kl && typeof stage.kl === 'object' ? stage.kl[length] : undefined));
    return stages.length ? card({
      name: `KL at ${length} tokens`, show: v => fixed(v, 3), unit: 'nats',
      text: 'Mean distance of an attention row from its softmax row; 0 is identical, lower is better.',
    }, stages) : null;
  }).filter(Boolean);
}

function showResults() {
  if (!run.summary) return mount('results', absent('summary.json'));
  const keys = new Set(STAGES.flatMap(stage => Object.keys(run.summary[stage.key] || {})));
  const known = Object.keys(MEASURES).filter(key => keys.has(key));
  const other = [...keys].filter(key => !MEASURES[key] && key !== 'kl');
  const cards = [...known, ...other].map(key => {
    const stages = stagesOf(stage => stage[key]);
    const measure = MEASURES[key] || { name: words(key), show: v => short(v, 4), text: 'A measure of this run.' };
    return stages.length ? card(measure, stages) : null;
  }).filter(Boolean);
  const kl = klCards();
  if (!cards.length && !kl.length) return mount('results', absent('summary.json', 'before or after figures'));
  mount('results', el('div', { class: 'cards' }, [...cards, ...kl]), el('p', { class: 'note' },
    'Large figures are the finished model. On each line: ○ the new attention before any training, ◆ after distillation, ● finished.'));
}

const KINDS = { hedgehog: 'Hedgehog linear attention', entmax: 'alpha-entmax attention', 'talking-heads': 'talking-heads attention', partial: 'attention from partial computation',
  'selected-keys': 'attention to selected keys', linformer: 'Linformer attention', window: 'attention to the nearest keys',
  partial: 'attention from partial scores', softmax: 'softmax attention' };

function showMasthead() {
  const summary = run.summary || {};
  const model = summary.model || {};
  const parts = [];
  if (summary.kind) parts.push(`Softmax attention replaced by ${KINDS[summary.kind] || summary.kind}` + (summary.map ? ` (feature map ${summary.map})` : ''));
  if (isNumber(model.layers) && isNumber(model.heads)) parts.push(`${parts.length ? 'in ' : ''}${count(model.layers)} layers of ${count(model.heads)} heads`);
  document.getElementById('subtitle').textContent = parts.length ? `${parts.join(' ')}.` : `Run ${run.run}.`;
  document.getElementById('made').textContent = `Written by hedgerow ${run.hedgerow} on ${run.generated.replace('T', ' at ').replace('Z', ' UTC')} from the run folder “${run.run}”.` +
    (run.missing.length ? ` Not in the folder: ${run.missing.join(', ')}.` : '');
}
