// Runs the model on every backend in COLUMNS and compares the outputs with those of the first.
// The runtime comes from a public CDN; another place can be given as repro.html?ort=URL/.

const VIEWS = {
  float32: Float32Array, float64: Float64Array, float16: Uint16Array,
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
  bool: Uint8Array,
};
const SECONDS = 90; // for one backend

const table = document.querySelector('table');
const given = new URLSearchParams(location.search).get('ort');
document.querySelector('#bug').textContent = BUG;

function cell(row, text, note = '') {
  const made = document.createElement(row === table.rows[0] || !row.cells.length ? 'th' : 'td');
  made.textContent = text;
  if (note) made.append(Object.assign(document.createElement('small'), { textContent: note }));
  row.append(made);
  return made;
}

async function tensor(ort, { type, dims, data, file }) {
  if (type === 'string') return new ort.Tensor(type, data, dims);
  const View = VIEWS[type];
  const values = file
    ? new View(await (await fetch(file)).arrayBuffer())
    : View.from(data, View.name.startsWith('Big') ? BigInt : Number);
  try {
    return new ort.Tensor(type, values, dims);
  } catch (error) {
    if (type !== 'float16' || typeof Float16Array === 'undefined') throw error;
    return new ort.Tensor(type, new Float16Array(values.buffer), dims);
  }
}

async function run({ version, bundle, threads, options, model: file }) {
  const base = given ?? `https://cdn.jsdelivr.net/npm/onnxruntime-web@${version}/dist/`;
  const module = await import(new URL(bundle, new URL(base, location.href)));
  const ort = module.InferenceSession ? module : module.default;
  ort.env.wasm.wasmPaths = new URL(base, location.href).href;
  ort.env.wasm.numThreads = threads;
  const model = new Uint8Array(await (await fetch(file)).arrayBuffer());
  const session = await ort.InferenceSession.create(model, options);
  const feeds = {};
  for (const input of INPUTS) feeds[input.name] = await tensor(ort, input);
  const outputs = {};
  for (const [name, { type, dims, data }] of Object.entries(await session.run(feeds))) {
    outputs[name] = { type, dims: [...dims], data: type === 'string' ? [...data] : Array.from(data, Number) };
  }
  await session.release();
  return outputs;
}

function timed(promise) {
  const late = new Promise((_, fail) =>
    setTimeout(() => fail(new Error(`no answer in ${SECONDS} s`)), SECONDS * 1000));
  return Promise.race([promise, late]);
}

const show = (number) => (Number.isFinite(number) ? Number(number.toPrecision(5)).toString() : String(number));

function range(data) {
  let low = Infinity, high = -Infinity;
  for (const value of data) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return data.length ? `Range: [${show(low)}, ${show(high)}]` : 'empty';
}

// What a cell says of an output, and whether it is wrong, as numpy.allclose has it.
function compare(output, reference) {
  if (!output) return { text: 'missing', wrong: true };
  if (output.type === 'string') {
    const wrong = String(output.data) !== String(reference.data);
    return { text: output.data.slice(0, 4).join(', '), wrong };
  }
  if (String(output.dims) !== String(reference.dims) || output.type !== reference.type) {
    return { text: `${output.type}[${output.dims}], not ${reference.type}[${reference.dims}]`, wrong: true };
  }
  const largest = reference.data.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0);
  let sum = 0, max = 0, bad = 0;
  output.data.forEach((value, i) => {
    const wanted = reference.data[i];
    if (Object.is(value, wanted) || value === wanted) return;
    const gap = Math.abs(value - wanted);
    sum += gap;
    max = Math.max(max, gap);
    if (!(gap <= ATOL + RTOL * Math.abs(wanted) + SCALE * largest)) bad += 1;
  });
  const count = output.data.length || 1;
  const lines = [`MAD: ${show(sum / count)}`, `max: ${show(max)}`, range(output.data)];
  if (bad) lines.push(`${bad} of ${output.data.length} elements wrong`);
  return { text: lines.join('\n'), wrong: bad > 0 };
}

function fill(results) {
  const reference = results[0].outputs ?? {};
  const names = Object.keys(reference);
  if (!names.length) names.push('(no output)');
  const head = table.insertRow();
  cell(head, 'output');
  for (const { column } of results) cell(head, column.name, `${column.version} ${column.bundle}`);
  for (const name of names) {
    const row = table.insertRow();
    cell(row, name.length > 60 ? `${name.slice(0, 59)}…` : name);
    results.forEach((result, i) => {
      if (result.error) {
        cell(row, result.error).className = 'failed';
      } else if (i === 0) {
        cell(row, `(reference)\n${range(reference[name].data)}`);
      } else {
        const { text, wrong } = reference[name] ? compare(result.outputs[name], reference[name]) : { text: 'runs' };
        cell(row, text).className = wrong ? 'wrong' : '';
        result.wrong ||= wrong;
      }
    });
  }
}

// The first two columns are the sides of the bug; the others are there for comparison.
function verdict([expected, actual]) {
  if (FAILING) {
    const [healthy, failing] = FAILING === 'actual' ? [expected, actual] : [actual, expected];
    return healthy.error ? 'unknown' : failing.error ? 'yes' : 'no';
  }
  if (expected.error || actual.error) return 'unknown';
  return actual.wrong ? 'yes' : 'no';
}

const results = [];
for (const column of COLUMNS) {
  try {
    const outputs = await timed(run(column));
    results.push({ column, outputs });
    console.log(column.name, outputs);
  } catch (error) {
    results.push({ column, error: `fails: ${error?.message ?? error}`.slice(0, 300) });
    console.log(column.name, error);
  }
}
fill(results);
const shows = verdict(results);
document.querySelector('#status').textContent = {
  yes: 'The bug shows.', no: 'The bug does not show.', unknown: 'Cannot tell: a side does not run here.',
}[shows];
document.body.dataset.shows = shows;
