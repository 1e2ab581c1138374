// Overlap of the strongest directions of layers, with each other and with another model's.

const OVERLAPS = {
  overlap: { title: 'Directions in common', unit: 'in common', text: 'The share of the directions of one layer that lie in the space of the other.' },
  explained: { title: 'Variance explained', unit: 'explained', text: 'The share of the variance of the row’s layer that the directions of the column’s layer explain.' },
};

// Rows are layers of this model, columns its own or another model's.
function layerPairs(kind, rows, k, { chance, own }) {
  const { title, unit, text } = OVERLAPS[kind];
  const values = finiteOf(rows.flat());
  if (!values.length) return absent('spectra.json', `${kind} for this choice`);
  const marked = kind === 'overlap' && isNumber(chance);
  const between = own ? mean(offDiagonal(rows)) : mean(values);
  const middle = isNumber(between) ? ` Between ${own ? 'different layers' : 'the models'} it is ${percent(between)} in the mean.` : '';
  const bar = el('div', { class: 'legend under' });
  const edge = marked && chance > 0.3 ? [[0, '0']] : [];
  barRedraws.push(() => bar.replaceChildren(words(unit), colourBar('sequential', [...edge, ...(marked ? [[chance, `chance ${percent(chance)}`]] : [[0, '0']]), ...(marked && chance > 0.6 ? [] : [[1, '100 %']])])));
  return panel(title, `${text}${marked ? ` Random spaces would share ${percent(chance)}.` : ''}${middle}`,
    chart(`${title} of ${k} directions: ${rows.length} by ${rows[0].length} layers, from ${percent(smallest(values))} to ${percent(largest(values))}${isNumber(between) ? `, mean ${percent(between)}` : ''}`,
      width => heatOption(rows, 1, unit, width, { low: 0, column: own ? 'layer' : 'its layer', show: percent, label: value => fixed(value * 100, 0) }), heatHeight(rows)),
    bar, numbers(['', ...rows[0].map((_, b) => `${own ? 'Layer' : 'Its layer'} ${b + 1}`)], rows.map((row, a) => [`Layer ${a + 1}`, ...row.map(percent)]), `${title} of ${k} directions`));
}

function showOverlap() {
  const { forms, against } = run.spectra;
  const other = ((against || {}).model || {}).name || 'another model';
  const sides = against ? ['own', 'other'] : ['own'];
  const kinds = Object.keys(OVERLAPS);
  const all = [...Object.entries(forms), ...Object.entries((against || {}).forms || {})];
  const has = form => form && kinds.some(kind => numberKeys(form[kind]).length);
  const names = formNames(forms, (against || {}).forms).filter(name => all.some(([own, form]) => own === name && has(form)));
  const sizes = numberKeys(Object.assign({}, ...all.flatMap(([, form]) => kinds.map(kind => form[kind]))));
  if (!names.length) return mount('overlap', absent('spectra.json', 'overlap'));
  const chosen = { side: 'own', form: names[0], k: nearest(sizes, 16) };
  const set = (key, show) => value => { chosen[key] = value; show(); };
  mount('overlap', ...controlled(show => [
    keyChoice('Rows of', names, chosen.form, formName, set('form', show)),
    keyChoice('Directions', sizes, chosen.k, k => k, set('k', show)),
    keyChoice('Compare with', sides, chosen.side, side => (side === 'own' ? 'Its own layers' : other), set('side', show)),
  ], () => {
    const own = chosen.side === 'own';
    const form = (own ? forms : against.forms)[chosen.form] || {};
    const chance = (form.chance || (forms[chosen.form] || {}).chance || {})[chosen.k];
    return [el('div', { class: 'grid-2' }, kinds.map(kind => {
      const rows = (form[kind] || {})[chosen.k];
      return rows ? layerPairs(kind, rows, chosen.k, { chance, own }) : absent('spectra.json', `${kind} for this choice`);
    }))];
  }));
}
