//! What only the FSDP runtimes read of a layout.

use leptos::prelude::*;
use planner::Dtype;
use planner::runtime::Runtime;
use planner::shard::STRATEGIES;
use planner::wire::PlanFile;
use serde_json::Value;

use super::more::More;
use crate::fields::{Choice, FieldRow, Number, Select, Toggle};
use crate::state::paths::{element_id, field};
use crate::state::store;

/// A field whose values are words, in forms that may also be other JSON.
struct Words {
    path: &'static str,
    label: &'static str,
    hint: &'static str,
    get: fn(&PlanFile) -> Option<Value>,
    set: fn(&mut PlanFile, Value),
}

const STRATEGY: Words = Words {
    path: "layout.fsdp.strategy",
    label: "Sharded",
    hint: "layout.fsdp.strategy: what is split over the sharding group",
    get: |file| file.layout.fsdp.strategy.clone().map(Value::from),
    set: |file, value| file.layout.fsdp.strategy = value.as_str().map(str::to_owned),
};

const OUTER: Words = Words {
    path: "layout.fsdp.outer_strategy",
    label: "Sharded outside",
    hint: "layout.fsdp.outer_strategy: what is split over the outer group",
    get: |file| file.layout.fsdp.outer_strategy.clone().map(Value::from),
    set: |file, value| file.layout.fsdp.outer_strategy = value.as_str().map(str::to_owned),
};

const RESHARD: Words = Words {
    path: "layout.fsdp.reshard_after_forward",
    label: "Reshard after forward",
    hint: "Whether gathered parameters are given back between forward and backward",
    get: |file| file.layout.fsdp.reshard_after_forward.clone(),
    set: |file, value| file.layout.fsdp.reshard_after_forward = Some(value),
};

const TP_PLAN: Words = Words {
    path: "layout.tp_plan",
    label: "Tensor plan",
    hint: "layout.tp_plan: which module is cut how",
    get: |file| file.layout.tp_plan.clone(),
    set: |file, value| file.layout.tp_plan = (value != OWN).then_some(value),
};

/// The runtime's own plan has no word in a plan file.
const OWN: &str = "own";

/// Fields that a layout of a runtime does not have.
pub fn hidden(runtime: Option<Runtime>) -> &'static [&'static str] {
    runtime.unwrap_or_default().facts().lacks
}

/// Id of the part that opens.
pub const MORE: &str = "fsdp-more";

/// Fields of the part that opens.
pub const FIELDS: &[&str] = &[
    "layout.fsdp.offload",
    "layout.fsdp.sharded_dtype",
    "layout.fsdp.reduce_dtype",
    "layout.fsdp.output_dtype",
    "layout.fsdp.double_buffer",
    "layout.fsdp.nccl_ub",
    "layout.fsdp.preserve_fp32_weights",
    "layout.fsdp.init_meta",
];

const DTYPES: &[(Dtype, &str)] =
    &[(Dtype::Bf16, "bf16"), (Dtype::Fp16, "fp16"), (Dtype::Fp32, "fp32"), (Dtype::Fp64, "fp64")];

const OFFLOAD: Words = Words {
    path: "layout.fsdp.offload",
    label: "Shards live on",
    hint: "layout.fsdp.offload: none for the GPU, cpu for the host",
    get: |file| file.layout.fsdp.offload.clone().map(Value::from),
    set: |file, value| file.layout.fsdp.offload = value.as_str().map(str::to_owned),
};

/// Settings of the runtime that few plans change.
fn more_fields(runtime: Option<Runtime>) -> Option<impl IntoView> {
    let facts = runtime?.facts();
    if !facts.shards_parameters {
        return None;
    }
    let fields = match facts.flat_units {
        false => view! {
            <WordChoice words=&OFFLOAD options=vec![("none", "none"), ("cpu", "cpu")]/>
            <Choice field=field!(layout.fsdp.sharded_dtype) label="Shards" hint="layout.fsdp.sharded_dtype: type of shards, their gradients and moments" options=DTYPES/>
            <Choice field=field!(layout.fsdp.reduce_dtype) label="Reduction" hint="layout.fsdp.reduce_dtype: type in which gradients are reduced" options=DTYPES/>
            <Choice field=field!(layout.fsdp.output_dtype) label="Output" hint="layout.fsdp.output_dtype: type that the model's output is cast to" options=DTYPES/>
        }
        .into_any(),
        true => view! {
            <Toggle field=field!(layout.fsdp.double_buffer) label="Double buffer" hint="Persistent buffers for two units"/>
            <Toggle field=field!(layout.fsdp.nccl_ub) label="Registered buffers" hint="layout.fsdp.nccl_ub: buffers registered with NCCL"/>
            <Toggle field=field!(layout.fsdp.preserve_fp32_weights) label="fp32 weights" hint="layout.fsdp.preserve_fp32_weights: the optimizer works on fp32 copies"/>
            <Toggle field=field!(layout.fsdp.init_meta) label="Meta device" hint="layout.fsdp.init_meta: the model is materialised unit by unit"/>
        }
        .into_any(),
    };
    Some(view! { <More id=MORE fields=FIELDS>{fields}</More> })
}

/// The fields.
#[component]
pub fn FsdpFields(runtime: Memo<Option<Runtime>>) -> impl IntoView {
    let strategies: Vec<(&'static str, &'static str)> =
        STRATEGIES.iter().map(|(name, _)| (*name, *name)).collect();
    move || {
        let has = |path: &str| !hidden(runtime.get()).contains(&path);
        let replicas = has("layout.dp_replicate").then(|| {
            view! { <Number field=field!(layout.dp_replicate) label="Replicas" steps=true hint="layout.dp_replicate: copies of the sharded model, or the outer size"/> }
        });
        let words = |words: &'static Words, options: &[(&'static str, &'static str)]| {
            let options = options.to_vec();
            has(words.path).then(|| view! { <WordChoice words=words options=options/> })
        };
        view! {
            {replicas}
            {words(&STRATEGY, &strategies)}
            {words(&OUTER, &[("no_shard", "no_shard"), ("optim", "optim")])}
            {words(&RESHARD, &[("default", "default"), ("always", "always"), ("never", "never")])}
            {words(&TP_PLAN, &[(OWN, "runtime's own"), ("hf", "hf")])}
            {more_fields(runtime.get())}
        }
    }
}

#[component]
fn WordChoice(words: &'static Words, options: Vec<(&'static str, &'static str)>) -> impl IntoView {
    let store = store();
    let first = options.first().map(|(value, _)| *value).unwrap_or_default();
    let current = Signal::derive(move || {
        let given = (words.get)(&store.said());
        let value = given.or_else(|| store.answer.with(|answer| answer.plan.as_ref().and_then(words.get)));
        match value {
            Some(Value::String(word)) => word,
            Some(Value::Object(_)) => "from the plan file".to_owned(),
            Some(Value::Null) | None => first.to_owned(),
            Some(other) => other.to_string(),
        }
    });
    let choose = move |word: String| store.edit(words.path, |plan| (words.set)(plan, Value::from(word)));
    let options = options.into_iter().map(|(value, text)| (value.to_owned(), text.to_owned())).collect();
    view! {
        <FieldRow path=words.path label=words.label hint=words.hint>
            <Select path=words.path hook=element_id(words.path) options=options current=current choose=Callback::new(choose)/>
        </FieldRow>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_written_at_their_paths() {
        for (words, word) in [(&STRATEGY, "optim"), (&OUTER, "optim"), (&RESHARD, "never"), (&TP_PLAN, "hf")]
        {
            let mut plan = PlanFile { version: 1, ..PlanFile::default() };
            (words.set)(&mut plan, Value::from(word));
            let expected = crate::state::paths::with_value(
                &PlanFile { version: 1, ..PlanFile::default() },
                words.path,
                &Value::from(word),
            );
            assert_eq!(plan, expected.unwrap());
            assert_eq!((words.get)(&plan), Some(Value::from(word)));
        }
        let mut plan = PlanFile::default();
        (TP_PLAN.set)(&mut plan, Value::from(OWN));
        assert_eq!(plan.layout.tp_plan, None);
    }

    #[test]
    fn every_runtime_that_has_no_fsdp_hides_all() {
        let whole = Runtime::ALL.into_iter().filter(|runtime| !runtime.facts().shards_parameters);
        for runtime in whole.map(Some).chain([None]) {
            for words in [&STRATEGY, &OUTER, &RESHARD, &TP_PLAN] {
                assert!(hidden(runtime).contains(&words.path), "{}", words.path);
            }
        }
    }
}
