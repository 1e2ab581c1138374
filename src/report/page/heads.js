// The page of an analysis: what the heads of one model do.

function headName({ layer, head }) {
  return `Layer ${layer + 1}, head ${head + 1}`;
}

// [{layer, head, value}] with numbers, of a matrix that may be missing.
function knownHeads(rows) {
  return Array.isArray(rows) ? headRows(rows).filter(head => isNumber(head.value)) : [];
}

function percent(value) {
  return isNumber(value) ? `${fixed(value * 100, value < 0.0995 ? 1 : 0)}\u00a0%` : '–';
}

function offsetName(offset) {
  if (offset === 0) return 'the token itself';
  const side = offset < 0 ? 'before' : 'after';
  return Math.abs(offset) === 1 ? `the token ${side}` : `the token ${Math.abs(offset)} places ${side}`;
}

function signed(offset) {
  return offset > 0 ? `+${offset}` : String(offset).replace('-', '−');
}

const HEAD_VALUES = {
  alpha: { text: '1 is softmax, which never gives zero; 1.5 and 2 (sparsemax) cut more and more tokens off.' },
};

function layerColour(layer, layers) {
  const colours = ramp('present');
  const at = layers > 1 ? layer / (layers - 1) * (colours.length - 2) + 0.6 : 2;
  const [from, to] = [Math.floor(at), Math.min(colours.length - 1, Math.floor(at) + 1)];
  const mix = [1, 3, 5].map(place => {
    const [a, b] = [colours[from], colours[to]].map(text => parseInt(text.slice(place, place + 2), 16));
    return Math.round(a + (b - a) * (at - from));
  });
  return `rgb(${mix.join(',')})`;
}

// A bar whose colour follows the theme, for values from `low` to `top`.
function scaleLegend(label, low, top, show) {
  const bar = el('div', { class: 'legend under' });
  barRedraws.push(() => bar.replaceChildren(label, colourBar('sequential', [[0, show(low)], [0.5, show((low + top) / 2)], [1, show(top)]])));
  return bar;
}

function heatPanel(title, sentence, rows, { low, top, unit, show, whole = false }) {
  const values = knownHeads(rows).map(head => head.value);
  return panel(title, sentence,
    chart(`${title}: ${values.length} heads, mean ${show(mean(values))}, from ${show(smallest(values))} to ${show(largest(values))}`, width => heatOption(rows, top, unit, width, { low, ...(whole ? { show, label: show } : {}) }), heatHeight(rows)),
    scaleLegend(unit, low, top, show),
    numbers(['Layer and head', words(unit)], headRows(rows).map(head => [headName(head), whole ? show(head.value) : fixed(head.value, 4)]), title));
}

function glanceCard(title, value, unit, text) {
  return el('div', { class: 'card' }, el('h3', {}, title), el('p', { class: 'figure-value' }, value, unit && el('small', {}, unit)), el('p', { class: 'note' }, text));
}

function showGlance() {
  const { density, entropy, diversity, head_values: values } = run.heads;
  const cards = [];
  const shares = knownHeads(density).map(head => head.value);
  if (shares.length) {
    const dense = smallest(shares) === 1;
    cards.push(glanceCard('Mean density', percent(mean(shares)), '', dense ? 'Every head puts some weight on every token that it sees, as softmax does.'
      : `Of the tokens that it sees, a head puts weight on this share; the others get exactly zero. Heads range from ${percent(smallest(shares))} to ${percent(largest(shares))}.`));
  }
  for (const [name, rows] of Object.entries(values || {})) {
    const known = knownHeads(rows).map(head => head.value);
    if (known.length) cards.push(glanceCard(words(name), fixed(smallest(known), 2), known.length > 1 ? `to ${fixed(largest(known), 2)}` : '',
      `Over ${count(known.length)} heads, mean ${fixed(mean(known), 3)}. ${(HEAD_VALUES[name] || {}).text || ''}`));
  }
  const spreads = knownHeads(entropy).map(head => head.value);
  if (spreads.length) cards.push(glanceCard('Mean entropy', fixed(mean(spreads), 2), '', 'How evenly a head spreads its weight: 0 is one token, 1 is all tokens alike.'));
  if (finiteOf(diversity || []).length) cards.push(glanceCard('Diversity of heads', fixed(mean(diversity), 2), '', 'Jensen–Shannon divergence between the heads of a layer: 0 when all look alike.'));
  const far = (run.heads.positional_heads || [])[0], merging = (run.heads.subword_merging_heads || [])[0];
  if (far && isNumber(far.weight)) cards.push(glanceCard('Strongest fixed distance', percent(far.weight), signed(far.offset), `${headName(far)} puts this share of its weight on ${offsetName(far.offset)}.`));
  if (merging && isNumber(merging.weight)) cards.push(glanceCard('Strongest word joiner', percent(merging.weight), '', `${headName(merging)}: the largest share that a piece of a word puts on the word’s other pieces.`));
  mount('glance', cards.length ? el('div', { class: 'cards' }, cards) : absent('heads.json', 'figures'));
}

function showHeadsMasthead() {
  const { model = {}, data = {} } = run.heads;
  const kinds = [...new Set(((model || {}).mixers || []).map(mixer => mixer.mixer))];
  const first = kinds.map(kind => KINDS[kind] || kind).join(' and ') || 'Attention';
  const heads = (run.heads.density || []).map(row => row.length);
  const parts = [first.charAt(0).toUpperCase() + first.slice(1)];
  if (heads.length) parts.push(`in ${count(heads.length)} ${heads.length === 1 ? 'layer' : 'layers'} of ${count(largest(heads))} ${largest(heads) === 1 ? 'head' : 'heads'}`);
  if (data && isNumber(data.texts)) parts.push(`on ${count(data.texts)} ${data.texts === 1 ? 'text' : 'texts'} (${count(data.tokens)} tokens)`);
  document.getElementById('subtitle').textContent = `${parts.join(' ')}.`;
  document.getElementById('made').textContent = `Written by hedgerow ${run.hedgerow} on ${run.generated.replace('T', ' at ').replace('Z', ' UTC')} from the folder “${run.run}”.` +
    ' Layers and heads are counted from 1 in this page.';
}

function showHeadsRun() {
  const { model = {}, data = {}, command, versions = {}, seconds: time } = run.heads;
  const facts = [['Model', (model || {}).name], ['Architecture', (model || {}).architecture], ['Layers', (model || {}).layers], ['Heads', (model || {}).heads], ['Width', (model || {}).hidden],
    ['Text', (data || {}).file], ['Texts', (data || {}).texts], ['Tokens', (data || {}).tokens], ['Cut to', (data || {}).length], ['Words in pieces', (data || {}).subword_groups], ['Time', isNumber(time) ? seconds(time) : null]]
    .filter(([, value]) => value !== undefined && value !== null).map(([name, value]) => [name, typeof value === 'number' ? count(value) : plain(value)]);
  const kinds = ((model || {}).mixers || []).map(({ mixer, ...options }) => [mixer, ...Object.entries(options).map(([name, value]) => `${name} ${plain(value)}`)].join(', '));
  const mixers = new Set(kinds).size === 1 ? [['All layers', kinds[0]]] : kinds.map((kind, layer) => [`Layer ${layer + 1}`, kind]);
  facts.push(...Object.entries(versions || {}).map(([name, value]) => [name, plain(value)]));
  mount('run',
    panel('Command', null, command ? el('pre', { class: 'command', tabindex: 0 }, String(command)) : absent('heads.json', 'command')),
    el('div', { class: 'grid-2' },
      panel('Model and text', null, facts.length ? pairs(facts) : absent('heads.json', 'model')),
      panel('Attention by layer', null, mixers.length ? pairs(mixers) : absent('heads.json', 'mixers'))));
}

function showHeads() {
  showHeadsMasthead();
  showGlance();
  showDensity();
  showLearned();
  showSpread();
  showRoles();
  showMaps();
  showHeadsRun();
}
