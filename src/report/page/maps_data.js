// Quantised attention weights: one head is decoded when it is shown, never the whole text.

// Weight of each of the 256 stored steps.
function mapLevels() {
  return Float32Array.from({ length: 256 }, (_, q) => (run.maps.scale === 'linear' ? q / 255 : (q / 255) ** 2));
}

const mapTexts = { sentence: -1, teacher: '', model: '' };

function mapText(sentence, side) {
  if (mapTexts.sentence !== sentence) Object.assign(mapTexts, { sentence, teacher: '', model: '' });
  if (!mapTexts[side]) mapTexts[side] = document.getElementById(`maps-${sentence}-${side}`).textContent;
  return mapTexts[side];
}

// Bytes [offset, offset + length) of what the base64 text stands for, reading only that part of it.
function base64Slice(text, offset, length) {
  const first = Math.floor(offset / 3), last = Math.ceil((offset + length) / 3);
  const decoded = atob(text.slice(first * 4, last * 4));
  const skip = offset - first * 3;
  const out = new Uint8Array(length);
  for (let i = 0; i < length; ++i) out[i] = decoded.charCodeAt(i + skip);
  return out;
}

function headBytes(sentence, side, layer, head) {
  const area = run.maps.sentences[sentence].size ** 2;
  let index = head;
  for (let l = 0; l < layer; ++l) index += run.maps.heads[l];
  return base64Slice(mapText(sentence, side), index * area, area);
}

// Weights of teacher, model and difference of one head, with the scales of their colours.
function headMaps(sentence, layer, head) {
  const levels = mapLevels();
  if (isSingle()) {
    const model = Float32Array.from(headBytes(sentence, 'model', layer, head), byte => levels[byte]);
    return { model, top: model.reduce((a, b) => Math.max(a, b), 0) || 1 };
  }
  const teacherBytes = headBytes(sentence, 'teacher', layer, head), modelBytes = headBytes(sentence, 'model', layer, head);
  const size = teacherBytes.length;
  const teacher = new Float32Array(size), model = new Float32Array(size), difference = new Float32Array(size);
  let top = 0, spread = 0;
  for (let i = 0; i < size; ++i) {
    teacher[i] = levels[teacherBytes[i]];
    model[i] = levels[modelBytes[i]];
    difference[i] = model[i] - teacher[i];
    top = Math.max(top, teacher[i], model[i]);
    spread = Math.max(spread, Math.abs(difference[i]));
  }
  return { teacher, model, difference, top: top || 1, spread: spread || 1 };
}

// 256 packed pixels along a list of #rrggbb colours.
function pixelRamp(colours) {
  const stops = colours.map(text => [1, 3, 5].map(at => parseInt(text.slice(at, at + 2), 16)));
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const at = i / 255 * (stops.length - 1);
    const left = Math.min(stops.length - 2, Math.floor(at));
    const [r, g, b] = stops[left].map((channel, c) => Math.round(channel + (stops[left + 1][c] - channel) * (at - left)));
    return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  });
}

// Index of a colour: the square root shows weak weights beside strong ones.
function sequentialIndex(weight, top) {
  return Math.min(255, Math.round(Math.sqrt(Math.max(0, weight) / top) * 255));
}

// Where zeros are exact, colour 0 is the empty ground and every other weight has a tint.
function weightIndex(weight, top) {
  const index = sequentialIndex(weight, top);
  return run.maps.zeros && weight > 0 ? Math.max(1, index) : index;
}

function weightPalette() {
  if (!run.maps.zeros) return pixelRamp(ramp('sequential'));
  const palette = pixelRamp(ramp('present'));
  palette[0] = pixelRamp([colour('--surface'), colour('--surface')])[0];
  return palette;
}

function divergingIndex(weight, spread) {
  const share = Math.sqrt(Math.min(1, Math.abs(weight) / spread));
  return Math.round(127.5 + Math.sign(weight) * share * 127.5);
}

// Paints n x n values into pixels x pixels: every cell has sharp edges, and where there are more
// cells than pixels the strongest of a pixel's cells shows, so that no peak is lost.
function paintMap(context, left, top, pixels, values, n, indexOf, palette) {
  const image = context.createImageData(pixels, pixels);
  const out = new Uint32Array(image.data.buffer);
  const from = Int32Array.from({ length: pixels }, (_, p) => Math.floor(p * n / pixels));
  const to = Int32Array.from({ length: pixels }, (_, p) => Math.max(from[p] + 1, Math.floor((p + 1) * n / pixels)));
  for (let y = 0; y < pixels; ++y) {
    if (y > 0 && from[y] === from[y - 1] && to[y] === to[y - 1]) {
      out.copyWithin(y * pixels, (y - 1) * pixels, y * pixels);
      continue;
    }
    for (let x = 0; x < pixels; ++x) {
      let strongest = 0, size = 0;
      for (let row = from[y]; row < to[y]; ++row)
        for (let at = row * n + from[x], end = row * n + to[x]; at < end; ++at) {
          const value = values[at], magnitude = value < 0 ? -value : value;
          if (magnitude > size) { strongest = value; size = magnitude; }
        }
      out[y * pixels + x] = palette[indexOf(strongest)];
    }
  }
  context.putImageData(image, left, top);
}

// A token as one can see it: control characters and blanks become visible signs.
function visibleToken(token) {
  if (token === '') return '∅';
  return token.replace(/[\u0000-\u001f]/g, c => String.fromCharCode(0x2400 + c.charCodeAt(0))).replace(/\u007f/g, '␡')
    .replace(/ /g, '␣').replace(/[\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, '□');
}

// Name of a row or column: a token, or the first and last of a bin.
function binName(sentence, index) {
  const { tokens, bin } = run.maps.sentences[sentence];
  const first = index * bin, last = Math.min(tokens.length, first + bin) - 1;
  if (last <= first) return { label: visibleToken(tokens[first]), place: String(first + 1) };
  return { label: `${visibleToken(tokens[first])} … ${visibleToken(tokens[last])}`, place: `${first + 1} to ${last + 1}` };
}
