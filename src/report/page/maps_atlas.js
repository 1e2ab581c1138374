// All heads of a sentence as small pictures; one click shows a head in full.

const atlas = { canvas: null, job: 0, thumb: 0, gap: 3, left: 0, top: 0 };

function atlasLayout() {
  const heads = largest(run.maps.heads, 1), layers = run.maps.heads.length;
  const width = atlas.canvas.parentElement.clientWidth;
  atlas.left = 24;
  atlas.top = 18;
  atlas.thumb = Math.max(16, Math.min(96, Math.floor((width - atlas.left) / heads) - atlas.gap));
  const pitch = atlas.thumb + atlas.gap;
  return { heads, layers, width: atlas.left + heads * pitch, height: atlas.top + layers * pitch, pitch };
}

function atlasValues(sentence, layer, head) {
  if (view.atlas !== 'difference') return headBytes(sentence, view.atlas, layer, head);
  const teacher = headBytes(sentence, 'teacher', layer, head), model = headBytes(sentence, 'model', layer, head);
  const levels = mapLevels();
  const difference = new Float32Array(model.length);
  for (let i = 0; i < model.length; ++i) difference[i] = levels[model[i]] - levels[teacher[i]];
  return difference;
}

// Draws head after head while the browser has nothing else to do, so that long texts never block
// the page.
function startAtlas() {
  const job = ++atlas.job;
  const { heads, layers, width, height, pitch } = atlasLayout();
  const ratio = Math.min(2, devicePixelRatio || 1);
  const canvas = atlas.canvas;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = '11px "Hedgerow Sans", system-ui, sans-serif';
  context.fillStyle = colour('--muted');
  context.textBaseline = 'middle';
  context.textAlign = 'center';
  context.strokeStyle = colour('--line');
  const every = Math.ceil(18 / pitch);
  for (let h = 0; h < heads; h += every) context.fillText(String(h + 1), atlas.left + h * pitch + atlas.thumb / 2, 8);
  for (let l = 0; l < layers; l += every) context.fillText(String(l + 1), 9, atlas.top + l * pitch + atlas.thumb / 2);

  const { sentence } = view;
  const n = run.maps.sentences[sentence].size;
  const diverging = view.atlas === 'difference';
  const palette = diverging ? pixelRamp(ramp('diverging')) : weightPalette();
  const pixels = Math.round(atlas.thumb * ratio);
  const levels = mapLevels();
  let layer = 0, head = 0;
  canvas.dataset.done = 'false';
  const soon = window.requestIdleCallback ? next => requestIdleCallback(next, { timeout: 60 }) : next => setTimeout(next, 20);
  const slice = () => {
    if (job !== atlas.job) return;
    const end = performance.now() + 12;
    while (layer < layers && performance.now() < end) {
      const values = atlasValues(sentence, layer, head);
      let top = 0;
      for (let i = 0; i < values.length; ++i) top = Math.max(top, values[i], -values[i]);
      top = top || 1;
      const indexOf = diverging ? value => divergingIndex(value, top) : value => weightIndex(levels[value], levels[top]);
      paintMap(context, Math.round((atlas.left + head * pitch) * ratio), Math.round((atlas.top + layer * pitch) * ratio), pixels, values, n, indexOf, palette);
      if (run.maps.zeros) context.strokeRect(atlas.left + head * pitch + 0.5, atlas.top + layer * pitch + 0.5, atlas.thumb - 1, atlas.thumb - 1);
      if (++head >= run.maps.heads[layer]) { head = 0; ++layer; }
    }
    if (layer < layers) soon(slice); else canvas.dataset.done = 'true';
  };
  soon(slice);
  markAtlas();
}

function markAtlas() {
  const pitch = atlas.thumb + atlas.gap;
  atlas.mark.style.cssText = `display:block;border-width:2px;left:${atlas.left + view.head * pitch - 2}px;top:${atlas.top + view.layer * pitch - 2}px;width:${atlas.thumb + 4}px;height:${atlas.thumb + 4}px;border-radius:3px`;
  atlas.label.textContent = `Layer ${view.layer + 1}, head ${view.head + 1}`;
}

function onAtlasClick(event) {
  const bounds = atlas.canvas.getBoundingClientRect();
  const pitch = atlas.thumb + atlas.gap;
  const head = Math.floor((event.clientX - bounds.left - atlas.left) / pitch), layer = Math.floor((event.clientY - bounds.top - atlas.top) / pitch);
  if (layer < 0 || head < 0 || layer >= run.maps.heads.length || head >= run.maps.heads[layer]) return;
  view.layer = layer;
  view.head = head;
  showHead(false);
}

function atlasPanel() {
  atlas.canvas = el('canvas', { role: 'img', 'aria-label': 'Small pictures of all heads: rows are layers, columns are heads', onclick: onAtlasClick });
  atlas.mark = el('i', { class: 'cross' });
  atlas.label = el('span', { class: 'note' });
  const frame = el('div', { class: 'atlas-scroll', tabindex: 0, role: 'application', onkeydown: onMapKey, 'aria-label': 'All heads. Arrow keys choose the head and layer shown above.' }, el('div', { style: 'position:relative' }, atlas.canvas, atlas.mark));
  new ResizeObserver(() => { if (frame.clientWidth !== atlas.width) { atlas.width = frame.clientWidth; if (maps) startAtlas(); } }).observe(frame);
  const pick = !isSingle() && choice('Show', SIDES.map(side => ({ value: side.key, name: side.key === 'teacher' ? 'Teacher' : side.name })), view.atlas, value => { view.atlas = value; startAtlas(); });
  return el('figure', { class: 'panel', role: 'group', 'aria-label': 'All heads at a glance' },
    el('figcaption', {}, el('h3', {}, 'All heads at a glance'), atlas.label, el('p', {}, 'The same sentence in every head: rows are layers, columns are heads, each with colours of its own; choose one to see it above.')),
    pick && el('div', { class: 'controls', style: 'margin-bottom:0.9rem' }, pick), frame);
}
