// The attention-map viewer: a sentence, a layer and a head; teacher, converted and difference.

const SIDES = [
  { key: 'teacher', name: 'Teacher (softmax)' },
  { key: 'model', name: 'Converted' },
  { key: 'difference', name: 'Difference' },
];

// A conversion shows two models and their difference, an analysis one model.
function mapSides() {
  return isSingle() ? [{ key: 'model', name: 'Weights' }] : SIDES;
}

function isSingle() {
  return run.maps.sides.length === 1;
}

const view = { sentence: 0, layer: 0, head: 0, row: -1, col: -1, atlas: '' };
let maps = null;       // weights of the head in view
let panels = [];       // {side, canvas, frame, cross, box} of the three pictures
let controls = null;   // selects and texts of the viewer

function labelLayout(context, n, width) {
  context.font = '11px "Hedgerow Sans", system-ui, sans-serif';
  const limit = width < 330 ? 52 : 76;
  const binned = run.maps.sentences[view.sentence].bin > 1;
  const text = i => {
    if (binned) return String(i * run.maps.sentences[view.sentence].bin + 1);
    let label = binName(view.sentence, i).label;
    if (context.measureText(label).width <= limit) return label;
    const letters = [...label];
    while (letters.length > 1 && context.measureText(letters.join('') + '…').width > limit) letters.pop();
    return letters.join('') + '…';
  };
  let every = Math.max(1, Math.ceil(n * 12 / (width - limit)));
  if (binned) every = Math.max(every, Math.ceil(n / 8));
  const labels = Array.from({ length: Math.ceil(n / every) }, (_, i) => ({ at: i * every, text: text(i * every) }));
  const room = Math.ceil(largest(labels.map(label => context.measureText(label.text).width), 8)) + 8;
  return { labels, room };
}

function paintPanel(panelEntry, layout) {
  const { side, canvas, frame } = panelEntry;
  const n = run.maps.sentences[view.sentence].size;
  const ratio = Math.min(3, devicePixelRatio || 1);
  const width = frame.clientWidth;
  const size = width - layout.room - 1;
  const edge = Math.round(layout.room * ratio);
  const pixels = Math.max(1, Math.floor(size * ratio));
  canvas.width = Math.round(width * ratio);
  canvas.height = edge + pixels;
  canvas.style.height = `${canvas.height / ratio}px`;
  const context = canvas.getContext('2d');
  const diverging = side === 'difference';
  const palette = diverging ? pixelRamp(ramp('diverging')) : weightPalette();
  const indexOf = diverging ? value => divergingIndex(value, maps.spread) : value => weightIndex(value, maps.top);
  paintMap(context, edge, edge, pixels, maps[side], n, indexOf, palette);
  if (run.maps.zeros) drawGaps(context, edge, pixels, n);
  panelEntry.box = { edge: edge / ratio, size: pixels / ratio, n };

  context.scale(ratio, ratio);
  context.strokeStyle = colour('--line');
  context.lineWidth = 1 / ratio;
  context.strokeRect(panelEntry.box.edge, panelEntry.box.edge, panelEntry.box.size - 0.5, panelEntry.box.size - 0.5);
  context.font = '11px "Hedgerow Sans", system-ui, sans-serif';
  context.fillStyle = colour('--muted');
  context.textBaseline = 'middle';
  const cell = panelEntry.box.size / n;
  for (const { at, text } of layout.labels) {
    const middle = panelEntry.box.edge + (at + 0.5) * cell;
    context.textAlign = 'right';
    context.fillText(text, panelEntry.box.edge - 5, middle);
    context.save();
    context.translate(middle, panelEntry.box.edge - 5);
    context.rotate(-Math.PI / 2);
    context.textAlign = 'left';
    context.fillText(text, 0, 0);
    context.restore();
  }
}

// Lines of the ground's colour between cells: weights become tiles, and zeros stay empty.
function drawGaps(context, edge, pixels, n) {
  const cell = pixels / n;
  if (cell < 6) return;
  context.fillStyle = colour('--surface');
  for (let i = 1; i < n; ++i) {
    const at = edge + Math.round(i * cell);
    context.fillRect(at, edge, 1, pixels);
    context.fillRect(edge, at, pixels, 1);
  }
}

function paintMaps() {
  const visible = panels.filter(entry => entry.frame.clientWidth);
  if (!maps || !visible.length) return;
  const n = run.maps.sentences[view.sentence].size;
  const layout = labelLayout(visible[0].canvas.getContext('2d'), n, visible[0].frame.clientWidth);
  visible.forEach(entry => paintPanel(entry, layout));
  placeCross();
  controls.legends.replaceChildren(weightLegend(), isSingle() ? '' :
    el('div', { class: 'legend' }, 'Converted − teacher', colourBar('diverging', [[0, `−${short(maps.spread, 2)}`], [0.5, '0'], [1, short(maps.spread, 2)]])));
}

function weightLegend() {
  const top = short(maps.top, 2), middle = short(maps.top / 4, 2);
  if (!run.maps.zeros) return el('div', { class: 'legend' }, 'Weight', colourBar('sequential', [[0, '0'], [0.5, middle], [1, top]]));
  return el('div', { class: 'legend' }, el('span', { class: 'zero-key' }), 'exactly 0', el('span', { class: 'legend-gap' }), 'weight',
    colourBar('present', [[0, 'above 0'], [0.5, middle], [1, top]]));
}

function placeCross() {
  for (const { cross, box } of panels) {
    if (!box) continue;
    const visible = view.row >= 0;
    const cell = box.size / box.n;
    const thick = Math.max(cell, 1);
    cross[0].style.cssText = `display:${visible ? 'block' : 'none'};left:${box.edge}px;width:${box.size}px;top:${box.edge + view.row * cell}px;height:${thick}px`;
    cross[1].style.cssText = `display:${visible ? 'block' : 'none'};top:${box.edge}px;height:${box.size}px;left:${box.edge + view.col * cell}px;width:${thick}px`;
  }
}

function showReadout() {
  const { bin, size } = run.maps.sentences[view.sentence];
  if (isSingle()) return showReading();
  if (view.row < 0) {
    controls.readout.replaceChildren(el('span', { class: 'muted' }, 'Point at a cell, or tap it, to read its weights.'));
    return;
  }
  const row = binName(view.sentence, view.row), col = binName(view.sentence, view.col);
  const at = view.row * size + view.col;
  const signed = value => (value > 0 ? '+' : '') + fixed(value, 4);
  controls.readout.replaceChildren(
    el('bdi', {}, el('b', {}, row.label)), el('span', { class: 'muted' }, ` (token ${row.place}) looks at `),
    el('bdi', {}, el('b', {}, col.label)), el('span', { class: 'muted' }, ` (token ${col.place})`), el('br'),
    el('span', { class: 'muted' }, bin > 1 ? 'largest weight: teacher ' : 'teacher '), el('b', {}, fixed(maps.teacher[at], 4)),
    el('span', { class: 'muted' }, ', converted '), el('b', {}, fixed(maps.model[at], 4)),
    el('span', { class: 'muted' }, ', difference '), el('b', {}, signed(maps.difference[at])));
}

function pointAt(row, col) {
  if (row === view.row && col === view.col) return;
  view.row = row;
  view.col = col;
  placeCross();
  showReadout();
}

function cellUnder(event, entry) {
  const bounds = entry.frame.getBoundingClientRect();
  const place = offset => Math.floor((offset - entry.box.edge) / entry.box.size * entry.box.n);
  const row = place(event.clientY - bounds.top), col = place(event.clientX - bounds.left);
  const inside = row >= 0 && col >= 0 && row < entry.box.n && col < entry.box.n;
  return inside ? [row, col] : null;
}

// Shows the head in view; a new sentence also gets a new reading point and atlas.
function showHead(newSentence) {
  const sentence = run.maps.sentences[view.sentence];
  view.layer = Math.min(run.maps.heads.length - 1, Math.max(0, view.layer));
  view.head = Math.min(run.maps.heads[view.layer] - 1, Math.max(0, view.head));
  maps = headMaps(view.sentence, view.layer, view.head);
  if (newSentence) {
    view.row = view.col = isSingle() ? Math.min(1, sentence.size - 1) : -1;
    controls.text.textContent = sentence.text;
    controls.size.textContent = `${count(sentence.tokens.length)} tokens.` + (sentence.bin > 1
      ? ` One cell stands for ${sentence.bin} × ${sentence.bin} tokens and shows the largest weight among them.` : '');
    controls.sentence.value = String(view.sentence);
  }
  controls.layer.value = String(view.layer);
  const heads = run.maps.heads[view.layer];
  if (controls.head.options.length !== heads) controls.head.replaceChildren(...Array.from({ length: heads }, (_, h) => el('option', { value: h }, `${h + 1} of ${heads}`)));
  controls.head.value = String(view.head);
  controls.status.textContent = `Layer ${view.layer + 1} of ${run.maps.heads.length}, head ${view.head + 1} of ${heads}`;
  paintMaps();
  showReadout();
  if (newSentence) startAtlas(); else markAtlas();
}

function moveHead(layers, heads) {
  const wrap = (value, size) => (value + size) % size;
  view.layer = wrap(view.layer + layers, run.maps.heads.length);
  view.head = heads ? wrap(view.head + heads, run.maps.heads[view.layer]) : view.head;
  showHead(false);
}

function onMapKey(event) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (event.key === 'Escape' && view.row >= 0) return pointAt(-1, -1);
  if (!step || event.altKey || event.ctrlKey || event.metaKey) return undefined;
  event.preventDefault();
  if (!event.shiftKey) return moveHead(step[0], step[1]);
  const last = run.maps.sentences[view.sentence].size - 1;
  const clamp = value => Math.min(last, Math.max(0, value));
  return view.row < 0 ? pointAt(0, 0) : pointAt(clamp(view.row + step[0]), clamp(view.col + step[1]));
}

function mapControls() {
  const sentences = run.maps.sentences, layers = run.maps.heads.length;
  const shortened = text => { const letters = [...text.replace(/\s+/g, ' ')]; return letters.length > 90 ? letters.slice(0, 88).join('') + '…' : letters.join(''); };
  const sentence = el('select', { id: 'pick-sentence', onchange: event => { view.sentence = Number(event.target.value); showHead(true); } },
    sentences.map((item, i) => el('option', { value: i }, `${shortened(item.text)} (${count(item.tokens.length)})`)));
  const layer = el('select', { onchange: event => { view.layer = Number(event.target.value); showHead(false); } },
    Array.from({ length: layers }, (_, l) => el('option', { value: l }, `${l + 1} of ${layers}`)));
  const head = el('select', { onchange: event => { view.head = Number(event.target.value); showHead(false); } });
  controls = { sentence, layer, head, text: el('p', { class: 'sentence', dir: 'auto', tabindex: 0 }), size: el('p', { class: 'note' }),
    readout: el('p', { class: 'readout', role: 'status', 'aria-live': 'polite' }), legends: el('div', { class: 'map-legends' }), status: el('span', { class: 'hidden', role: 'status', 'aria-live': 'polite' }) };
  return el('div', { class: 'controls' }, el('div', { class: 'field wide' }, el('label', { for: 'pick-sentence' }, 'Sentence (tokens)'), sentence),
    stepper('Layer', layer, by => moveHead(by, 0)), stepper('Head', head, by => moveHead(0, by)),
    !isSingle() && choice('Pictures', [{ value: 'all', name: 'All three' }, ...SIDES.map(side => ({ value: side.key, name: side.key === 'teacher' ? 'Teacher' : side.name }))], 'all', showSides));
}

// All three pictures side by side, or one of them large.
function showSides(chosen) {
  panels[0].figure.parentElement.classList.toggle('single', chosen !== 'all');
  for (const entry of panels) entry.figure.hidden = chosen !== 'all' && entry.side !== chosen;
  paintMaps();
}

function mapPanels() {
  panels = mapSides().map(({ key, name }) => {
    const canvas = el('canvas', { role: 'img', 'aria-label': `${name}: attention weights as a picture` });
    const cross = [el('i', { class: 'cross row' }), el('i', { class: 'cross col' })];
    const frame = el('div', { class: 'map-frame' }, canvas, cross);
    const entry = { side: key, canvas, frame, cross, box: null, figure: el('figure', { class: 'map' }, !isSingle() && el('figcaption', {}, name), frame) };
    const read = event => { const cell = entry.box && cellUnder(event, entry); if (cell) pointAt(...cell); };
    frame.addEventListener('pointermove', read);
    frame.addEventListener('pointerdown', read);
    return entry;
  });
  const group = el('div', { class: isSingle() ? 'maps single' : 'maps', tabindex: 0, role: 'application', onkeydown: onMapKey,
    'aria-label': 'Attention maps. Arrow keys left and right change the head, up and down the layer; with Shift they move the reading point.' }, panels.map(entry => entry.figure));
  new ResizeObserver(paintMaps).observe(group);
  return group;
}

function showMaps() {
  const sentences = (run.maps || {}).sentences || [];
  if (!sentences.length) return mount('maps', absent('maps.json', run.maps ? 'sentences' : ''));
  const top = mapControls();
  view.atlas = mapSides()[0].key;
  const pictures = isSingle() ? el('div', { class: 'map-and-reading' }, mapPanels(), readingPanel()) : mapPanels();
  const keys = el('p', { class: 'hint', style: 'margin-top:0.4rem' }, 'Keys in the maps: ', el('kbd', {}, '←'), ' ', el('kbd', {}, '→'), ' head, ', el('kbd', {}, '↑'), ' ', el('kbd', {}, '↓'),
    ' layer, ', el('kbd', {}, 'Shift'), ' with an arrow moves the reading point. Weights are stored in 256 steps, finest near 0.');
  mount('maps', el('figure', { class: 'panel', role: 'group', 'aria-label': 'Attention maps' }, top, controls.text, pictures, !isSingle() && controls.readout, controls.legends, controls.size, keys, controls.status), atlasPanel());
  view.pending = true;
  barRedraws.push(() => { if (view.pending) { view.pending = false; showHead(true); } else { paintMaps(); startAtlas(); } });
}
