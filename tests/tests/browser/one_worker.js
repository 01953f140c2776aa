// One worker of the page's search does all of a search by itself, as a thread of the command does: arguments are the
// search, the architecture of its model and planner's data files, as the page sends them, window.seconds is what it took when
// all is done, and window.failed says why it never was.
window.seconds = window.failed = null;
const [request, architecture, data] = arguments;
const glue = `import init from '${new URL('searcher.js', document.baseURI)}'; await init();`;
const worker = new Worker(URL.createObjectURL(new Blob([glue], { type: 'text/javascript' })), { type: 'module' });
const heard = [];
let hears = null;
worker.onmessage = message => { heard.push(JSON.parse(message.data)); hears?.(); };
worker.onerror = error => { window.failed = String(error.message); };
const say = message => worker.postMessage(JSON.stringify(message));
const next = async () => {
  while (heard.length === 0) await new Promise(hear => { hears = hear; });
  return heard.shift();
};
const ask = async question => {
  say({ ProcessInput: [0, question] });
  for (;;) {
    const told = await next();
    if (told.ProcessOutput) return told.ProcessOutput[1];
  }
};
const search = async number => {
  const began = performance.now();
  const { parts } = (await ask({ Begin: { number, sought: { request, architecture } } })).Begun;
  let valid = 0, first = 0, partial = null;
  // Asked for no part, it tells what it did not tell yet.
  for (let told = false; !told;) {
    const { Worked: worked } = await ask({ Work: { number, first, end: parts } });
    told = first >= parts;
    first = worked.next;
    partial = worked.partial ?? partial;
    valid += worked.partial?.valid ?? 0;
  }
  const candidates = [...partial.fits.best, ...partial.tight.best].slice(0, 200);
  const { found: simulated } = (await ask({ Simulate: { number, candidates } })).Simulated;
  await ask({ Answer: { number, partial, simulated, last: true, help: false } });
  return { valid, seconds: (performance.now() - began) / 1000 };
};
(async () => {
  // It says when it is there, and hears nothing before.
  await next();
  say({ Connected: 0 });
  say({ ProcessInput: [0, { Data: data }] });
  // The first search is compiled while it runs, which the page's workers get over before they are wanted.
  await search(1);
  const found = await search(2);
  worker.terminate();
  window.seconds = found;
})().catch(error => { window.failed = String(error); });
return true;
