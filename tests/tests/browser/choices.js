// One model after another is chosen in the list, and everything else is left to be chosen on the cluster that is there. Arguments
// are the models, none for all. window.made is a row for each: its name, milliseconds from the change
// of the list to the text that says what was chosen, and that text; window.all_made says that it was the last.
window.made = [];
window.all_made = false;
const [wanted] = arguments;
const at = hook => document.querySelector(`[data-testid=${hook}]`);
const said = () => at('choice')?.textContent ?? '';
const is_made = () => said().startsWith('The best of') || said().startsWith('Nothing of');
const until = holds => new Promise(resolve => {
  if (holds()) return resolve();
  const watch = new MutationObserver(() => {
    if (!holds()) return;
    watch.disconnect();
    resolve();
  });
  watch.observe(document.body, { subtree: true, childList: true, characterData: true });
});
const set = (hook, value) => {
  const field = at(hook);
  field.value = value;
  for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind, { bubbles: true }));
};
// Longer than what counts as an edit that comes soon after another.
const pause = () => new Promise(resolve => setTimeout(resolve, 300));
(async () => {
  await pause();
  await until(is_made);
  // The tiny ones bring a cluster of their own.
  const models = [...at('preset-select').options].map(option => option.value).filter(name => name && !name.startsWith('tiny'));
  for (const model of wanted.length ? wanted : models) {
    if (at('preset-select').value === model) continue;
    await pause();
    const begun = performance.now();
    set('preset-select', model);
    await until(() => !is_made());
    await until(is_made);
    window.made.push([model, performance.now() - begun, said()]);
    // What would fit is looked for after it was said that nothing does.
    await until(() => !said().includes('looking for'));
  }
  window.all_made = true;
})();
