// Runs one case on ONNX Runtime Web. Loaded as a module worker (the usual way: a worker that hangs
// can be ended, on any device) or by the page itself (`main`).

const noted = { note: () => {}, lost: () => {}, stage: () => {} };
let ort = null;
let keeper = null; // a session that stays open so that the provider keeps its device and shaders

export function listen(listeners) {
  Object.assign(noted, listeners);
}

// What goes wrong without a rejection: shader errors reach the console and the device's own events.

for (const level of ['error', 'warn']) {
  const plain = console[level].bind(console);
  console[level] = (...parts) => {
    noted.note(`${level}: ${parts.map(String).join(' ')}`);
    plain(...parts);
  };
}

function hook(type, method, watch) {
  const prototype = globalThis[type]?.prototype;
  const plain = prototype?.[method];
  if (!plain) return;
  prototype[method] = function (...args) {
    const made = plain.apply(this, args);
    if (made instanceof Promise) made.then(watch, () => {});
    else if (made) watch(made);
    return made;
  };
}

hook('GPUAdapter', 'requestDevice', (device) => {
  device.addEventListener('uncapturederror', (event) =>
    noted.note(`webgpu: ${event.error.constructor.name}: ${event.error.message}`));
  device.lost.then((info) => {
    // "destroyed" is how every session ends.
    if (info.reason !== 'destroyed') noted.lost(`WebGPU device lost: ${info.message}`);
  });
});
hook('ML', 'createContext', (context) => {
  context.lost?.then((info) => {
    if (!/destroyed/i.test(info.message)) noted.lost(`WebNN context lost: ${info.message}`);
  });
});
const canvases = []; // contexts of WebGL: a lost one reads as zeros before its event comes
for (const canvas of ['OffscreenCanvas', 'HTMLCanvasElement']) {
  hook(canvas, 'getContext', (context) => {
    if (!context.isContextLost || canvases.includes(context)) return;
    canvases.push(context);
    context.canvas.addEventListener?.('webglcontextlost', () => noted.lost('WebGL context lost'));
  });
}

const views = {
  float32: Float32Array, float64: Float64Array, float16: Uint16Array, bfloat16: Uint16Array,
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
  bool: Uint8Array, int4: Uint8Array, uint4: Uint8Array,
};

// The tensors of an envelope (see wire.py), as descriptions over one buffer.
export function unpack(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  let at = 4 + size;
  for (const tensor of header.tensors) {
    tensor.data = buffer.slice(at, at + tensor.bytes);
    at += tensor.bytes + (-tensor.bytes & 7);
  }
  return header.tensors;
}

export function pack(header, tensors) {
  const described = tensors.map(({ name, type, dims, data }) =>
    ({ name, type, dims, bytes: data.byteLength }));
  const text = JSON.stringify({ ...header, tensors: described });
  let bytes = new TextEncoder().encode(text);
  bytes = new TextEncoder().encode(text + ' '.repeat(-(4 + bytes.length) & 7));
  const length = new DataView(new ArrayBuffer(4));
  length.setUint32(0, bytes.length, true);
  const parts = [length.buffer, bytes];
  for (const { data } of tensors) parts.push(data, new Uint8Array(-data.byteLength & 7));
  return new Blob(parts);
}

function tensorOf({ type, dims, data }) {
  if (type === 'string') return new ort.Tensor(type, JSON.parse(new TextDecoder().decode(data)), dims);
  const view = views[type];
  if (!view) throw new TypeError(`no tensor of type ${type} in ONNX Runtime Web`);
  try {
    return new ort.Tensor(type, new view(data), dims);
  } catch (error) {
    if (type !== 'float16' || typeof Float16Array === 'undefined') throw error;
    return new ort.Tensor(type, new Float16Array(data), dims);
  }
}

function plain(name, tensor) {
  const { type, data } = tensor;
  const dims = [...tensor.dims];
  if (type === 'string') return { name, type, dims, data: new TextEncoder().encode(JSON.stringify(data)).buffer };
  return { name, type, dims, data: data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength) };
}

async function bytesOf(url) {
  const response = await fetch(new URL(url, import.meta.url));
  if (!response.ok) throw new Error(`${url}: HTTP ${response.status}`);
  return response.arrayBuffer();
}

async function load(job) {
  if (!ort) {
    ort = await import(new URL(job.bundle, import.meta.url));
    ort = ort.InferenceSession ? ort : ort.default;
    ort.env.wasm.wasmPaths = new URL('ort/', import.meta.url).href;
    ort.env.wasm.numThreads = job.threads;
  }
  if (job.keep && !keeper) {
    keeper = await ort.InferenceSession.create(new Uint8Array(await bytesOf(job.dummy)), job.session);
    await runDummy(keeper);
  }
}

async function runDummy(session) {
  const x = new ort.Tensor('float32', Float32Array.of(1, 2, 3, 4), [1, 1, 2, 2]);
  const { y } = await session.run({ x });
  const right = [1, 4, 9, 16].every((value, i) => y.data[i] === value);
  if (!right) throw new Error('a product of four numbers comes out wrong');
}

// A new session tells whether the page can still be trusted; an old one runs on in a broken page.
async function healthy(job) {
  const check = async () => {
    const session = await ort.InferenceSession.create(new Uint8Array(await bytesOf(job.dummy)), job.session);
    await runDummy(session);
    await session.release();
    return true;
  };
  const late = new Promise((done) => setTimeout(done, 10000, false));
  return Promise.race([check().catch((error) => { noted.note(`health: ${describe(error)}`); return false; }), late]);
}

// ONNX Runtime Web up to 1.23 throws the address of a C++ exception: a number that says nothing.
function describe(error) {
  if (typeof error === 'number') return `C++ exception (a bare number, ${error})`;
  return String(error?.message || error);
}

export async function run(job) {
  const header = { ok: false, stage: 'fetch', ms: { runs: [] } };
  const results = [];
  const enter = (stage) => { header.stage = stage; noted.stage(stage); };
  let session = null;
  try {
    const [model, inputs, ...external] = await Promise.all(
      [job.model, job.inputs, ...job.external.map((file) => file.url)].map(bytesOf));
    enter('import');
    await load(job);
    const options = { ...job.session };
    if (external.length) {
      options.externalData = external.map((data, i) => ({ path: job.external[i].path, data: new Uint8Array(data) }));
    }
    const described = unpack(inputs);
    for (let round = 1; round <= job.sessions; round++) {
      enter('load');
      let start = performance.now();
      session = await ort.InferenceSession.create(new Uint8Array(model), options);
      header.ms.create = performance.now() - start;
      enter('feed');
      for (let turn = 1; turn <= job.runs; turn++) {
        const feeds = Object.fromEntries(described.map((tensor) => [tensor.name, tensorOf(tensor)]));
        enter('run');
        start = performance.now();
        const outputs = await session.run(feeds);
        header.ms.runs.push(performance.now() - start);
        if (round === job.sessions && turn === job.runs) {
          for (const [name, tensor] of Object.entries(outputs)) results.push(plain(name, tensor));
        }
      }
      enter('release');
      const done = session;
      session = null;
      await done.release();
    }
    if (canvases.some((context) => context.isContextLost())) noted.lost('WebGL context lost');
    else header.ok = true;
  } catch (error) {
    header.message = describe(error);
    header.error = error?.name ?? typeof error;
    try { await session?.release(); } catch (again) { noted.note(`release: ${describe(again)}`); }
    header.healthy = Boolean(ort) && await healthy(job);
  }
  return { header, results: header.ok ? results : [] };
}

if (typeof WorkerGlobalScope !== 'undefined' && self instanceof WorkerGlobalScope) {
  listen({
    note: (text) => postMessage({ note: text }),
    lost: (text) => postMessage({ lost: text }),
    stage: (text) => postMessage({ stage: text }),
  });
  onmessage = async ({ data }) => {
    const { header, results } = await run(data);
    postMessage({ header, results }, results.map((tensor) => tensor.data));
  };
}
