// The page: polls for orders, has them run, posts what came of them, and shows it.

import { listen, pack, run } from './runner.js';

const me = Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(36)).join('');
const place = new URL('.', location.href);
const shown = (id) => document.getElementById(id);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

let worker = null;
let workerKey = '';
let current = null; // the job that runs: {notes, stage, settle, warm}
let jobs = 0;
let ran = 0; // by this worker (or this page, with job.main)
let chain = Promise.resolve(); // one job after another

function show(kind, text) {
  shown('state').className = kind;
  shown('state').textContent = text;
}

function log(job, ms, text) {
  const row = shown('log').insertRow(0);
  for (const [i, value] of [jobs, job.label, Math.round(ms), text].entries()) {
    const cell = row.insertCell();
    cell.textContent = value;
    if (i % 2 === 0) cell.className = 'number';
  }
  while (shown('log').rows.length > 30) shown('log').deleteRow(-1);
}

// Things that the running job says, from the worker or from this page.

function hear({ note, lost, stage, header, results }) {
  if (lost) spoil({ fault: 'device lost', message: lost });
  else if (!current) return;
  else if (note) { if (current.notes.length < 40) current.notes.push(note.slice(0, 1000)); }
  else if (stage) current.stage = stage;
  else if (header) current.settle({ header, results });
}

function dropWorker() {
  worker?.terminate();
  worker = null;
  ran = 0;
}

// A fault: nothing in this worker can be trusted any more.
function spoil(fault) {
  dropWorker();
  current?.settle({ header: { ok: false, stage: current.stage, warm: current.warm, ...fault }, results: [] });
}

function startWorker(job) {
  const key = JSON.stringify([job.bundle, job.threads, job.session]);
  if (job.fresh || key !== workerKey) dropWorker();
  workerKey = key;
  if (worker) return;
  worker = new Worker(new URL('runner.js', place), { type: 'module' });
  worker.onmessage = ({ data }) => hear(data);
  worker.onerror = (event) =>
    spoil({ fault: 'worker', message: event.message || 'the worker could not start' });
}

async function perform(job) {
  jobs += 1;
  show('busy', `job ${jobs}: ${job.label}`);
  const start = performance.now();
  let watch;
  const answer = await new Promise((settle) => {
    if (!job.main) startWorker(job);
    current = { notes: [], stage: 'start', settle, warm: ran++ };
    const seconds = job.timeout + (current.warm ? 0 : job.start); // a cold worker compiles first
    watch = setTimeout(spoil, seconds * 1000, { fault: 'timeout', message: `no result in ${seconds} s` });
    if (job.main) {
      listen({ note: (note) => hear({ note }), lost: (lost) => hear({ lost }), stage: (stage) => hear({ stage }) });
      run(job).then(settle);
    } else {
      worker.postMessage(job);
    }
  });
  clearTimeout(watch);
  const header = { ...answer.header, console: current.notes };
  current = null;
  await post(`answer/${job.id}`, pack(header, answer.results));
  log(job, performance.now() - start, header.ok ? 'ran' : `${header.fault ?? header.stage}: ${header.message}`);
  if (job.main && (header.fault || header.healthy === false)) location.reload();
  show('idle', `waiting for the next job (${jobs} done)`);
}

async function post(path, body) {
  for (let wait = 200; ; wait = Math.min(2 * wait, 3000)) {
    try {
      return await fetch(new URL(path, place), { method: 'POST', body });
    } catch {
      show('down', 'cannot reach onnxreduce; trying again');
      await pause(wait);
    }
  }
}

async function poll(isNew) {
  const response = await fetch(new URL(`next?page=${me}${isNew ? '&new=1' : ''}`, place));
  if (!response.ok) throw new Error(`HTTP ${response.status}`);
  return response.json();
}

async function serve() {
  let isNew = true;
  for (;;) {
    let order;
    try {
      order = await poll(isNew);
    } catch {
      show('down', 'onnxreduce is not there (finished, or between two workers); trying again');
      await pause(1000);
      continue;
    }
    isNew = false;
    if (order.op === 'run') chain = chain.then(() => perform(order));
    else if (order.op === 'reload') return location.reload();
    else if (order.op === 'replaced') return show('down', 'another window has taken over; reload this page to take it back');
    else if (order.op === 'closed') await pause(500);
    else if (!current) show('idle', `waiting for a job (${jobs} done)`);
  }
}

// That `navigator.ml` is there says nothing: many builds have it and can make no context.
async function webnn(deviceType) {
  const context = await navigator.ml?.createContext({ deviceType }).catch(() => null);
  context?.destroy?.();
  return [`webnn-${deviceType}`, context ? 'makes a context' : null];
}

async function devices() {
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  const info = adapter?.info;
  const gl = document.createElement('canvas').getContext('webgl2');
  const names = gl?.getExtension('WEBGL_debug_renderer_info');
  return {
    browser: navigator.userAgent,
    secure: isSecureContext,
    isolated: Boolean(globalThis.crossOriginIsolated),
    webgpu: info ? [info.vendor, info.architecture, info.device, info.description].filter(Boolean).join(' ') : null,
    f16: Boolean(adapter?.features.has('shader-f16')),
    webgl: gl ? String(gl.getParameter(names ? names.UNMASKED_RENDERER_WEBGL : gl.RENDERER)) : null,
    ...Object.fromEntries(await Promise.all(['cpu', 'gpu', 'npu'].map(webnn))),
  };
}

async function introduce() {
  const found = await devices();
  for (const [name, value] of Object.entries(found)) {
    shown('facts').append(Object.assign(document.createElement('dt'), { textContent: name }),
      Object.assign(document.createElement('dd'), { textContent: value ?? 'none' }));
  }
  if (!found.secure) {
    shown('warning').hidden = false;
    shown('warning').textContent = 'This address is no secure context, so the browser hides WebGPU and WebNN. '
      + 'Reach it as http://127.0.0.1 instead (adb reverse tcp:PORT tcp:PORT, or ssh -L).';
  }
  await post('hello', JSON.stringify(found));
}

navigator.wakeLock?.request('screen').catch(() => {});
introduce();
serve();
