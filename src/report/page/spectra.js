// The page of spectra.json: how few numbers a row of attention needs.

const FORMS = {
  scores: { name: 'Scores', text: 'Scores of one query for all keys, before the softmax.' },
  centred: { name: 'Centred scores', text: 'Scores less the mean of their row, which the softmax does not see.' },
  weights: { name: 'Weights', text: 'Weights of one query for all keys, after the softmax.' },
};

function formName(form) {
  return (FORMS[form] || {}).name || words(form);
}

// Forms in a known order, whatever order a file has them in.
function formNames(...groups) {
  const names = groups.flatMap(forms => Object.keys(forms || {}));
  return [...new Set([...Object.keys(FORMS).filter(form => names.includes(form)), ...names])];
}

// The names of an object that are numbers, rising.
function numberKeys(object) {
  return Object.keys(object || {}).sort((a, b) => Number(a) - Number(b));
}

function shareName(share) {
  return `${short(Number(share) * 100, 4)}\u00a0%`;
}

// Inside a sentence; names keep their capitals after the first letter.
function lower(text) {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

// "9 to 23", or "9" where all are alike.
function spread(values, show = count) {
  const known = finiteOf(values);
  if (!known.length) return '–';
  const [low, high] = [show(smallest(known)), show(largest(known))];
  return low === high ? low : `${low} to ${high}`;
}

function spectraLayers() {
  return run.spectra.model.layers;
}

// A choice between names of an object, where there is more than one.
function keyChoice(label, keys, chosen, name, onchange) {
  return keys.length > 1 && choice(label, keys.map(value => ({ value, name: name(value) })), chosen, onchange);
}

// Of what may be chosen, that which is nearest to a number.
function nearest(keys, target) {
  return keys.reduce((best, key) => (best === undefined || Math.abs(key - target) < Math.abs(best - target) ? key : best), undefined);
}

function offDiagonal(rows) {
  return rows.flatMap((row, a) => row.filter((_, b) => b !== a));
}

// Per method its mean share of variance left over the layers after `positions` of them.
function meanResiduals(positions) {
  const layers = ((run.spectra.selection || {}).layers || []).map(layer => layer.residual || {});
  const names = [...new Set(layers.flatMap(residual => Object.keys(residual)))];
  return names.map(name => ({ name, value: mean(layers.map(residual => (residual[name] || [])[positions])) })).filter(({ value }) => isNumber(value));
}

function bestMethod(positions) {
  return meanResiduals(positions).filter(({ name }) => name !== 'floor').sort((a, b) => a.value - b.value)[0];
}

// The number of positions that cards speak of: near 16, of those that were measured.
function usualPositions() {
  const { cost, reconstruction = [] } = run.spectra;
  const measured = [...numberKeys(cost).map(Number), ...(reconstruction || []).map(({ positions }) => positions)];
  return nearest(measured, 16) || Math.min(16, run.spectra.n);
}

// The form and the share of variance that sentences speak of.
function mainDimension() {
  const { forms } = run.spectra;
  const [form] = formNames(forms);
  const shares = numberKeys((forms[form] || {}).k);
  const share = nearest(shares, 0.95);
  return share && finiteOf(forms[form].k[share]).length ? { form, share, k: forms[form].k[share], shared: (forms[form].shared_k || {})[share] } : null;
}

function statement() {
  const { n } = run.spectra, main = mainDimension();
  if (!main) return null;
  const parts = [`${shareName(main.share)} of the variance of ${lower(formName(main.form))} for ${count(n)} keys ${spectraLayers() === 1 ? 'lies' : 'lies, layer by layer,'} in ${spread(main.k)} directions`];
  if (spectraLayers() > 1 && isNumber(main.shared)) parts.push(`one set for all layers takes ${count(main.shared)}`);
  const positions = usualPositions(), best = bestMethod(positions), floor = meanResiduals(positions).find(({ name }) => name === 'floor');
  const chosen = best ? ` The best ${count(positions)} positions leave ${percent(best.value)} of it unexplained${floor ? `; as many principal components would leave ${percent(floor.value)}` : ''}.` : '';
  return el('p', { class: 'statement' }, `${parts.join('; ')}.${chosen}`);
}

function formCards() {
  const { n, forms } = run.spectra;
  return formNames(forms).flatMap(form => {
    const { k, shared_k: shared } = forms[form];
    const share = nearest(numberKeys(k), 0.95);
    const values = share ? finiteOf(k[share]) : [];
    if (!values.length) return [];
    const together = spectraLayers() > 1 && isNumber((shared || {})[share]) ? ` One set of directions for all layers takes ${count(shared[share])}.` : '';
    return [glanceCard(formName(form), spread(values), `of ${count(n)}`, `Directions that hold ${shareName(share)} of ${spectraLayers() > 1 ? 'a layer’s variance, from the simplest layer to the richest' : 'the variance'}. ${(FORMS[form] || {}).text || ''}${together}`)];
  });
}

function overlapCard() {
  const main = mainDimension();
  const { overlap, chance } = main ? run.spectra.forms[main.form] : {};
  const k = nearest(numberKeys(overlap), 16);
  const value = k ? mean(offDiagonal(overlap[k])) : null;
  if (!isNumber(value)) return null;
  const random = (chance || {})[k];
  return glanceCard('Overlap of layers', percent(value), '', `Mean share of the ${k} strongest directions of one layer’s ${lower(formName(main.form))} that another layer has as well${isNumber(random) ? `; chance is ${percent(random)}` : ''}.`);
}

function selectionCard() {
  const positions = usualPositions(), best = bestMethod(positions);
  if (!best) return null;
  const others = meanResiduals(positions).filter(({ name }) => !['floor', best.name].includes(name)).map(({ name, value }) => `${lower(methodName(name))} ${percent(value)}`);
  return glanceCard(`Left by ${count(positions)} positions`, percent(best.value), '', `Share of variance that the positions of the best method (${lower(methodName(best.name))}) leave, mean over layers${others.length ? `; ${others.join(', ')}` : ''}.`);
}

function costCard() {
  const { cost } = run.spectra, key = nearest(numberKeys(cost), 16);
  const parts = Object.entries(key ? cost[key] : {}).filter(([, share]) => isNumber(share));
  if (!parts.length) return null;
  const [name, share] = parts[parts.length - 1];
  const rest = parts.slice(0, -1).map(([part, value]) => `${lower(costName(part))} ${percent(value)}`);
  return glanceCard(`Cost with ${key} positions`, percent(share), '', `Multiplications of the ${lower(costName(name))} as a share of exact attention’s${share >= 1 ? ': nothing is saved' : ''}${rest.length ? `; ${rest.join(', ')}` : ''}.`);
}

function showDimension() {
  const cards = [...formCards(), overlapCard(), selectionCard(), costCard()].filter(Boolean);
  mount('dimension', statement(), cards.length ? el('div', { class: 'cards' }, cards) : absent('spectra.json', 'dimensions'));
}

function showSpectraMasthead() {
  const { model, data = {}, n } = run.spectra;
  const size = `${count(model.layers)} ${model.layers === 1 ? 'layer' : 'layers'}${isNumber(model.heads) ? ` of ${count(model.heads)} ${model.heads === 1 ? 'head' : 'heads'}` : ''}`;
  const windows = data && isNumber(data.windows) ? ` from ${count(data.windows)} windows of text${isNumber(data.tokens) ? ` (${count(data.tokens)} tokens)` : ''}` : '';
  setMasthead(`Rows of attention over ${count(n)} keys in ${size}${windows}.`);
}

// The first part of a page says what it is about; the others find it said.
function setMasthead(text) {
  const subtitle = document.getElementById('subtitle');
  if (subtitle.textContent) return;
  subtitle.textContent = text;
  document.getElementById('made').textContent = `Written by hedgerow ${run.hedgerow} on ${run.generated.replace('T', ' at ').replace('Z', ' UTC')} from the folder “${run.run}”.` +
    ' Layers and heads are counted from 1 in this page, positions from 0.';
}

// What a file says of how it came to be, after what other files said.
function mountFileRun(file, facts, { command, versions }) {
  const alone = !document.querySelector('#run .mount').childElementCount;
  const title = text => (alone ? text : `${text} of ${file}`);
  const known = facts.filter(([, value]) => value !== undefined && value !== null).map(([name, value]) => [name, typeof value === 'number' ? count(value) : plain(value)]);
  const named = Object.entries(versions || {}).map(([name, value]) => [name, plain(value)]);
  mount('run', panel(title('Command'), null, command && command.length ? el('pre', { class: 'command', tabindex: 0 }, Array.isArray(command) ? command.join(' ') : command) : absent(file, 'command')),
    el('div', { class: 'grid-2' }, panel(title('Model and text'), null, known.length ? pairs(known) : absent(file, 'model')),
      panel(title('Versions'), null, named.length ? pairs(named) : absent(file, 'versions'))));
}

function showSpectraRun() {
  const { model, data, against, n, seconds: time } = run.spectra;
  const { file, windows, tokens } = data || {};
  mountFileRun('spectra.json', [['Model', model.name], ['Architecture', model.architecture], ['Layers', model.layers], ['Heads', model.heads], ['Width', model.hidden], ['Compared with', ((against || {}).model || {}).name],
    ['Keys of a row', n], ['Text', file], ['Windows', windows], ['Tokens', tokens], ['Time', isNumber(time) ? seconds(time) : null]], run.spectra);
}

function showSpectraPart() {
  showSpectraMasthead();
  showDimension();
  showSpectra();
  showOverlap();
  showPositions();
  showReconstruction();
  showMatrices();
  showCost();
  showSpectraRun();
}
