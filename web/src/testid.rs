//! Stable hooks: the values of `data-testid` that browser tests look for. A hook keeps its meaning when the look
//! of the page changes; tests know no class name and no text but these.

/// Word of the verdict in the answer line: `Fits`, `Tight`, `Does not fit`, `Invalid`.
pub const ANSWER_VERDICT: &str = "answer-verdict";
/// Peak memory in the answer line: in GiB, such as `71.2`, beside a capacity; else with its unit, such as `6.30 MiB`.
pub const ANSWER_PEAK: &str = "answer-peak";
/// Capacity in the answer line, in GiB with one decimal.
pub const ANSWER_CAPACITY: &str = "answer-capacity";
/// Headroom and likely interval in the answer line.
pub const ANSWER_HEADROOM: &str = "answer-headroom";
/// The answer as it is read out.
pub const ANSWER_SAID: &str = "answer-said";
/// The list of keys, a dialog.
pub const HELP: &str = "help";
/// Opens the inputs' sheet on a phone.
pub const SHEET_OPEN: &str = "sheet-open";
/// The search's plans to look at first.
pub const SEARCH_BESTS: &str = "search-bests";
/// Says that a picture is of an earlier plan, or that the plan is being chosen.
pub const DRAWN: &str = "drawn";
/// Lets a search choose everything; pins everything.
pub const OPEN_ALL: &str = "open-all";
/// Pins everything as it was chosen.
pub const PIN_ALL: &str = "pin-all";
/// What is best where something is chosen.
pub const OBJECTIVE: &str = "objective";
/// How many plans were looked at for the choice.
pub const CHOICE: &str = "choice";
/// Keeps a field that breaks a rule, and lets the rest be chosen.
pub const CHOOSE_REST: &str = "choose-rest";
/// Plan name in the answer line; click to rename.
pub const PLAN_NAME: &str = "plan-name";
/// Undo.
pub const UNDO: &str = "undo";
/// Redo.
pub const REDO: &str = "redo";
/// Copies the link to this plan.
pub const SHARE: &str = "share";
/// Steps through the themes.
pub const THEME: &str = "theme";
/// One finding; carries `data-field` and `data-severity`.
pub const FINDING: &str = "finding";
/// A clickable nearest value of a finding.
pub const FINDING_NEAREST: &str = "finding-nearest";

/// What is best in a search.
pub const SEARCH_OBJECTIVE: &str = "search-objective";
/// Opens the axes of a search; each axis' field is `search-` and its name.
pub const SEARCH_AXES: &str = "search-axes";
/// What the search is doing, in words; `data-phase` is `looking`, `simulating`, `done`, `cancelled` or `failed`.
pub const SEARCH_SAYS: &str = "search-says";
/// That a worker of the search had to be replaced.
pub const SEARCH_MISHAP: &str = "search-mishap";
/// Stops the search.
pub const SEARCH_CANCEL: &str = "search-cancel";
/// Begins it anew.
pub const SEARCH_AGAIN: &str = "search-again";
/// The ranked plans.
pub const SEARCH_TABLE: &str = "search-table";
/// One of them.
pub const SEARCH_ROW: &str = "search-row";
/// The line between plans that fit and tight ones.
pub const SEARCH_TIGHT: &str = "search-tight";
/// What must stay free of a GPU's memory.
pub const SEARCH_MARGIN: &str = "search-margin";
/// What is wrong with that.
pub const SEARCH_MARGIN_SAID: &str = "search-margin-said";
/// What to know before the rows are trusted.
pub const SEARCH_NOTE: &str = "search-note";
/// Where the plan now stands among the rows.
pub const SEARCH_OWN: &str = "search-own";
/// What a search may choose, and what it holds.
pub const SEARCH_SCOPE: &str = "search-scope";
/// What would fit where nothing does.
pub const SEARCH_RELIEF: &str = "search-relief";
/// What makes one of the changes that help.
pub const SEARCH_REMEDY: &str = "search-remedy";
/// The nearest faster plan, which does not fit.
pub const SEARCH_NEAREST: &str = "search-nearest";
/// Asks about settings.
pub const SEARCH_WHY: &str = "search-ask";
/// What is told of them.
pub const SEARCH_REASONS: &str = "search-reasons";
/// How many candidates there were; opens the rules that refused some.
pub const SEARCH_COUNTS: &str = "search-counts";

/// The line that opens the part `id` of a section.
pub fn more(id: &str) -> String {
    format!("more-{id}")
}

/// Choice of a model preset.
pub const PRESET_SELECT: &str = "preset-select";
/// Text box for a config.json.
pub const CONFIG_PASTE: &str = "config-paste";
/// Reads the text box.
pub const CONFIG_APPLY: &str = "config-apply";
/// File choice for a config.json or a plan file.
pub const CONFIG_FILE: &str = "config-file";

/// Weights of the fullest rank in GB (base 1000) with two decimals, such as `116.40 GB`.
pub const WEIGHTS_GB: &str = "weights-gb";
/// The same in GiB (base 1024).
pub const WEIGHTS_GIB: &str = "weights-gib";
/// Parameters of the whole model.
pub const PARAMETERS_TOTAL: &str = "parameters-total";
/// The memory chart's box; its SVG has role img.
pub const MEMORY_CHART: &str = "memory-chart";
/// Toggles the table of a chart.
pub const TABLE_TOGGLE: &str = "table-toggle";
/// The table with exact bytes.
pub const MEMORY_TABLE: &str = "memory-table";
/// Measured and predicted seconds of the shown run's step.
pub const STEP_COMPARE: &str = "step-compare";
/// The parts of a run's last step, measured and predicted.
pub const PARTS_TABLE: &str = "parts-table";
/// Takes the shown run as the plan's calibration.
pub const USE_CALIBRATION: &str = "use-calibration";
/// What calibrates the plan's seconds; with a button that takes it away.
pub const CALIBRATION: &str = "calibration";
/// That button.
pub const CALIBRATION_REMOVE: &str = "calibration-remove";
/// Advice: changes that make the plan fit, or that use its room.
pub const ADVICE: &str = "advice";
/// One change.
pub const ADVICE_ROW: &str = "advice-row";
/// Makes it.
pub const ADVICE_APPLY: &str = "advice-apply";
/// The chart of memory by phase; its SVG has role img.
pub const PHASES_CHART: &str = "phases-chart";
/// Choice of the ranks that it shows.
pub const PHASES_CLASS: &str = "phases-class";
/// Opens the table of expert-parallel sizes.
pub const SIZING: &str = "sizing";
/// That table.
pub const SIZING_TABLE: &str = "sizing-table";
/// One of its rows; `data-of` is TP-EP-GPUs.
pub const SIZING_ROW: &str = "sizing-row";
/// The panel that says where a number comes from.
pub const WHY_PANEL: &str = "why-panel";

/// The rank map. `data-renderer` is `webgpu` or `canvas` once it is known; `data-ranks`, `data-rank`, `data-colour`,
/// `data-lit` and `data-failed` say what was drawn last: how many ranks, the selected one, by what they are coloured, how many are lit,
/// how many are crossed out.
pub const RANK_GRID: &str = "rank-grid";
/// What is selected on the map, in words.
pub const RANK_SAYS: &str = "rank-says";
/// Choice of what colours the map.
pub const RANK_COLOUR: &str = "rank-colour";
/// Number of the selected rank.
pub const RANK_NUMBER: &str = "rank-number";
/// Saves where every rank stands.
pub const RANK_CSV: &str = "rank-csv";
/// Saves the map as a picture.
pub const RANK_SVG: &str = "rank-svg";
/// Groups of the selected rank.
pub const RANK_GROUPS: &str = "rank-groups";
/// Marks the selected rank's GPU as failed, or as working again.
pub const FAILED_MARK: &str = "failed-mark";
/// Makes clicks on the map mark GPUs.
pub const FAILED_CLICKS: &str = "failed-clicks";
/// Opens the study of what failed GPUs cost.
pub const STUDY: &str = "failure-study";
/// Share of GPUs that are down in the failure study, per cent.
pub const STUDY_RATE: &str = "study-rate";
/// Power of a boosted GPU in it, over its design power.
pub const STUDY_POWER: &str = "study-power";
/// Draws of a point of it.
pub const STUDY_DRAWS: &str = "study-draws";
/// What the study is drawn against.
pub const STUDY_AGAINST: &str = "study-against";
/// The study's figures.
pub const STUDY_TABLE: &str = "study-table";
/// Takes all failed GPUs back.
pub const FAILED_CLEAR: &str = "failed-clear";
/// What could be done about failed GPUs.
pub const FAILED_TABLE: &str = "failed-table";
/// The timeline. `data-renderer` is `webgpu`, `svg` or `canvas` once it is known; `data-stages`, `data-actions`,
/// `data-measured`, `data-sight` (share of the step on screen), `data-start` (share before it) and `data-selected`
/// (stage:micro batch) say what was drawn last.
pub const TIMELINE: &str = "timeline";
/// What is selected on the timeline, in words.
pub const TIMELINE_SAYS: &str = "timeline-says";
/// Why there is no timeline.
pub const TIMELINE_REFUSED: &str = "timeline-refused";
/// Says that the run that lies over the timeline is of another plan.
pub const TIMELINE_OTHER: &str = "timeline-other";
/// Lays the run that is shown over the timeline.
pub const TIMELINE_RUN: &str = "timeline-run";
/// Says in the answer line that the answer is of the plan before, while the best is chosen.
pub const ANSWER_EARLIER: &str = "answer-earlier";
/// Seconds of a step in the answer line, such as `3.21 s`.
pub const ANSWER_STEP: &str = "answer-step";
/// Tokens a second and GPU in the answer line, such as `1,561`.
pub const ANSWER_TOKENS: &str = "answer-tokens";
/// MFU in the answer line, such as `41.2 %`.
pub const ANSWER_MFU: &str = "answer-mfu";
/// Chart of what a step is spent on.
pub const BREAKDOWN_CHART: &str = "breakdown-chart";
/// Its table.
pub const BREAKDOWN_TABLE: &str = "breakdown-table";
/// Saves the trace.
pub const TIMELINE_TRACE: &str = "timeline-trace";
/// Lets what is not on the critical path step back.
pub const TIMELINE_PATH: &str = "timeline-path";
/// The table of the timeline.
pub const TIMELINE_TABLE: &str = "timeline-table";
/// The table of valid layouts; carries `data-count` (all of them) and `data-kept` (those that pass the filters).
pub const LAYOUTS_TABLE: &str = "layouts-table";
/// A row of it: a click makes it the plan. Carries `data-of`, tp-cp-pp-vpp-ep-etp, and `aria-current` on the plan's.
pub const LAYOUT_ROW: &str = "layout-row";
/// A filter by an axis; the full hook is `layouts-filter-tp` and so on.
pub const LAYOUTS_FILTER: &str = "layouts-filter-";
/// The rank whose slices are listed.
pub const SHARDS_RANK: &str = "shards-rank";
/// The slices of a rank; carries `data-rank`, `data-slices`, `data-elements` and `data-weights-bytes` (buffer
/// padding included).
pub const SHARDS_TABLE: &str = "shards-table";
/// A slice in it; `data-of` is its name.
pub const SHARD_ROW: &str = "shard-row";
/// Opens all layers.
pub const SHARDS_OPEN: &str = "shards-open";
/// The page before in a long table.
pub const PAGE_BEFORE: &str = "page-before";
/// The page after.
pub const PAGE_AFTER: &str = "page-after";
/// Toggles the table beside a run's curves.
pub const CURVES_TOGGLE: &str = "curves-toggle";
/// That table.
pub const CURVES_TABLE: &str = "curves-table";
/// Time and memory of the last step by phase.
pub const PHASE_TABLE: &str = "phase-table";
/// Text of the launch script.
pub const SCRIPT_TEXT: &str = "script-text";
/// Copies the script.
pub const SCRIPT_COPY: &str = "script-copy";
/// Downloads the script.
pub const SCRIPT_DOWNLOAD: &str = "script-download";
/// Saves the site's values as a file.
pub const SITE_SAVE: &str = "site-save";
/// Reads the site's values from a file.
pub const SITE_FILE: &str = "site-file";
/// Copies the command that writes the script.
pub const SCRIPT_COMMAND: &str = "script-command-copy";
/// Opens the habits of the cluster.
pub const SCRIPT_CLUSTER: &str = "script-cluster";
/// Opens container, environment and variables.
pub const SCRIPT_SOFTWARE: &str = "script-software";
/// Box for a pasted log.
pub const DIAGNOSE_PASTE: &str = "diagnose-paste";
/// Reads what was typed there.
pub const DIAGNOSE_READ: &str = "diagnose-read";
/// Chooses log files.
pub const DIAGNOSE_FILES: &str = "diagnose-files";
/// Whether the plan on the page is the run's.
pub const DIAGNOSE_PLAN: &str = "diagnose-plan";
/// How far reading is; carries `data-longest`, the most milliseconds that one slice took.
pub const DIAGNOSE_STATE: &str = "diagnose-state";
/// The diagnosis; carries `data-found`.
pub const DIAGNOSE_RESULT: &str = "diagnose-result";
/// Its cause; carries `data-cause` and `data-rank`.
pub const DIAGNOSE_CAUSE: &str = "diagnose-cause";
/// An out-of-memory error beside the plan.
pub const DIAGNOSE_AGAINST: &str = "diagnose-against";
/// Lines of the logs.
pub const DIAGNOSE_EVIDENCE: &str = "diagnose-evidence";
/// What was looked at.
pub const DIAGNOSE_LOOKED: &str = "diagnose-looked";
/// A batch script to look at.
pub const LINT_TEXT: &str = "lint-text";
/// File choice for it.
pub const LINT_FILE: &str = "lint-file";
/// How much was found in it, in words.
pub const LINT_SUMMARY: &str = "lint-summary";
/// What was found.
pub const LINT_FINDINGS: &str = "lint-findings";
/// One of these; carries `data-rule`, `data-line` and `data-severity`.
pub const LINT_FINDING: &str = "lint-finding";
/// The answer as JSON.
pub const DATA_JSON: &str = "data-json";

/// State of the connection to the hub: `offline`, `connecting`, `connected`, `waiting`, `refused`.
pub const HUB_STATE: &str = "hub-state";
/// Starts the plan on the hub's machine.
pub const RUN_START: &str = "run-start";
/// Whether the plan can be started on the hub's machine, and what it needs there.
pub const RUN_SAYS: &str = "run-says";
/// What can be done with a plan that can't be started there.
pub const RUN_INSTEAD: &str = "run-instead";
/// Goes on with the shown run from its newest checkpoint.
pub const RUN_RESUME: &str = "run-resume";
/// What the shown run went on from.
pub const RUN_RESUMED: &str = "run-resumed";
/// What the shown run has saved.
pub const RUN_SAVED: &str = "run-saved";
/// The loss on data that is held out.
pub const HELD_OUT_LOSS: &str = "held-out-loss";
/// How the shown run went on after ranks had died.
pub const RUN_RECOVERED: &str = "run-recovered";
/// What a run that is started does when ranks of it die: one of these, the spares, and how often.
pub const ON_FAILURE: &str = "on-failure";
/// GPUs that stand by.
pub const SPARES: &str = "spares";
/// How often it goes on without a new step.
pub const MAX_RECOVERIES: &str = "max-recoveries";
/// Asks whether a rank of the shown run shall be ended; carries `data-rank`.
pub const MARK_DEAD: &str = "mark-dead";
/// Ends it.
pub const MARK_DEAD_NOW: &str = "mark-dead-now";
/// The map of the shown run's ranks, which says what [`RANK_GRID`] says.
pub const RUN_MAP: &str = "run-map";
/// What is selected on it, in words.
pub const RUN_MAP_SAYS: &str = "run-map-says";
/// How the shown run is about to go on after a rank was lost.
pub const RUN_MAP_TOLD: &str = "run-map-told";
/// Has the shown run return to its whole plan.
pub const RUN_WHOLE: &str = "run-whole";
/// Predicted and measured speed by attempt.
pub const RUN_ATTEMPTS: &str = "run-attempts";
/// A row of it; `data-of` is the attempt.
pub const RUN_ATTEMPT: &str = "run-attempt";
/// Stops the shown run.
pub const RUN_STOP: &str = "run-stop";
/// State word of the shown run: `running`, `completed`, `stopped`, `failed`, `lost`.
pub const RUN_STATE: &str = "run-state";
/// What is missing in the logs of the shown run.
pub const RUN_MISSING: &str = "run-missing";
/// Why the shown run ended.
pub const RUN_REASON: &str = "run-reason";
/// Starts the plan's scaled-down twin on the hub's machine.
pub const TWIN_START: &str = "twin-start";
/// What the twin is made of, or why there is none.
pub const TWIN_SAYS: &str = "twin-says";
/// A run in the list; carries `data-run`.
pub const RUN_ITEM: &str = "run-item";
/// Table of a watched run: predicted and measured.
pub const WATCHED_TABLE: &str = "watched-table";
/// Steps done; carries `data-value`.
pub const STEP_VALUE: &str = "step-value";
/// A measured figure; the full hook is `measured-weights` and so on, with `data-rank` and `data-bytes`.
pub const MEASURED: &str = "measured-";
/// A predicted figure, likewise.
pub const PREDICTED: &str = "predicted-";
/// A residual, likewise.
pub const RESIDUAL: &str = "residual-";

/// Hook of a tab: `tab-memory`, `tab-timeline`, `tab-ranks`, `tab-layouts`, `tab-shards`, `tab-script`, `tab-run`, `tab-diagnose`, `tab-data`.
pub fn tab(id: &str) -> String {
    format!("tab-{id}")
}

/// Hook of a figure of the latest step of a run, such as `loss-value`; carries `data-value`, and `data-first` for the first step's.
pub fn of_figure(key: &str) -> String {
    format!("{}-value", key.replace('_', "-"))
}

/// Hook of a field: `layout.tp` is `field-layout-tp`.
pub fn field(path: &str) -> String {
    format!("field-{}", path.replace(['.', '_'], "-"))
}

/// Hook of a section's line: `section-model` and so on.
pub fn section(id: &str) -> String {
    format!("section-{id}")
}

/// The mark of a field that may be chosen: unpins it where it is said.
pub fn pin(path: &str) -> String {
    format!("{}-pin", field(path))
}
