// One token's row of weights as words: what it looks at, and what gets exactly nothing.

function readingPanel() {
  const words = el('div', { class: 'words', dir: 'auto' });
  const indexOf = event => Number((event.target.closest('[data-at]') || { dataset: {} }).dataset.at ?? -1);
  words.addEventListener('pointerover', event => { const at = indexOf(event); if (at >= 0) pointAt(view.row, at); });
  words.addEventListener('click', event => { const at = indexOf(event); if (at >= 0) pointAt(at, at); });
  controls.words = words;
  controls.wordsOf = '';
  barRedraws.push(() => { controls.wordsOf = ''; if (maps) showReading(); });
  return el('div', { class: 'reading' }, el('h3', {}, 'What the token looks at'), controls.readout, words,
    el('p', { class: 'hint' }, 'Choose a token here, or a row of the map, to see where it looks.'));
}

function wordTint(weight) {
  const index = weightIndex(weight, maps.top);
  const pixel = weightPalette()[index];
  // Where black and white stand out alike from the colours of `present`.
  const light = isDark() ? index <= 94 : index > 137;
  const ink = light ? '#ffffff' : '#0b0f0c';
  return `background:rgb(${pixel & 255} ${pixel >> 8 & 255} ${pixel >> 16 & 255});color:${ink}`;
}

function showReading() {
  const { size } = run.maps.sentences[view.sentence];
  const row = Math.max(0, view.row), col = Math.max(0, view.col);
  const weights = maps.model.subarray(row * size, (row + 1) * size);
  const shown = `${view.sentence}.${view.layer}.${view.head}.${row}`;
  if (controls.wordsOf !== shown) {
    controls.wordsOf = shown;
    controls.words.replaceChildren(...Array.from(weights, (weight, at) => el('span', {
      class: weight > 0 ? 'word' : 'word none', 'data-at': at, title: weight > 0 ? fixed(weight, 4) : 'exactly 0', style: weight > 0 ? wordTint(weight) : '',
    }, el('bdi', {}, binName(view.sentence, at).label))));
  }
  [...controls.words.children].forEach((word, at) => {
    word.classList.toggle('asking', at === row);
    word.classList.toggle('at', at === col);
  });
  const looking = binName(view.sentence, row), target = binName(view.sentence, col);
  const seen = weights.reduce((sum, weight) => sum + (weight > 0), 0);
  controls.readout.replaceChildren(
    el('bdi', {}, el('b', {}, looking.label)), el('span', { class: 'muted' }, ` (token ${looking.place}) puts weight on `), el('b', {}, `${seen} of ${size}`),
    el('span', { class: 'muted' }, seen < size ? ` tokens and exactly none on ${size - seen}.` : ' tokens.'), el('br'),
    el('span', { class: 'muted' }, 'On '), el('bdi', {}, el('b', {}, target.label)), el('span', { class: 'muted' }, ` (token ${target.place}) `),
    el('b', {}, weights[col] > 0 ? fixed(weights[col], 4) : 'exactly 0'), el('span', { class: 'muted' }, '.'));
}

// Shows a head from elsewhere in the page.
function showInMaps(layer, head) {
  view.layer = layer;
  view.head = head;
  showHead(false);
  document.getElementById('maps').scrollIntoView();
  document.querySelector('.maps').focus({ preventScroll: true });
}
