//! A row of an evidence file, and the inputs that it gives.

use serde_json::{Map, Value};

use super::{Case, Quantity};
use crate::cluster::gpu;
use crate::layout::Strides;
use crate::model::{Activation, Architecture, Attention, Norm, QkNorm, import_hf, presets};
use crate::plan::Plan;
use crate::time::constants::{residual_class, table};
use crate::time::{
    HostBytes, Inputs, ModelShape, Numbers, Recompute, Setup, SoftwareFacts, Stages, profile, setup,
};
use crate::wire::{CpKind, Schedule};

pub(in crate::accuracy) struct Row(Map<String, Value>);

/// The rows of a file: objects, or lists under names that stand once.
pub(in crate::accuracy) fn rows(name: &str, text: &str) -> Result<Vec<Row>, String> {
    let wrong = || format!("{name}.json is not a file of rows");
    let file: Value = serde_json::from_str(text).map_err(|error| format!("{}: {error}", wrong()))?;
    let list = file.get("rows").and_then(Value::as_array).ok_or_else(wrong)?;
    let columns: Option<Vec<&str>> = file
        .get("columns")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect());
    list.iter()
        .map(|row| match (row, &columns) {
            (Value::Object(row), _) => Ok(Row(row.clone())),
            (Value::Array(values), Some(names)) => {
                let pairs = names.iter().zip(values).map(|(name, value)| ((*name).to_owned(), value.clone()));
                Ok(Row(pairs.collect()))
            }
            _ => Err(wrong()),
        })
        .collect()
}

impl Row {
    pub(in crate::accuracy) fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    pub(in crate::accuracy) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(in crate::accuracy) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.as_u64()
    }

    /// A size of an axis: 1 where it is not printed.
    pub(in crate::accuracy) fn size(&self, name: &str) -> u64 {
        self.number(name).filter(|&size| size > 0).unwrap_or(1)
    }

    pub(in crate::accuracy) fn need(&self, name: &str) -> Result<u64, String> {
        self.number(name).filter(|&size| size > 0).ok_or_else(|| format!("no `{name}`"))
    }

    pub(in crate::accuracy) fn real(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_f64().filter(|value| *value > 0.0)
    }

    pub(in crate::accuracy) fn text(&self, name: &str) -> &str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub(in crate::accuracy) fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(in crate::accuracy) fn words(&self, name: &str) -> Vec<&str> {
        let list = self.get(name).and_then(Value::as_array);
        list.map(|words| words.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
    }

    pub(in crate::accuracy) fn id(&self) -> String {
        match self.text("id") {
            "" => {
                let pairs = self.0.iter().filter(|(_, value)| !value.is_null()).take(12);
                pairs.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
            }
            id => id.to_owned(),
        }
    }

    /// Everything but results: what a split must keep together.
    pub(super) fn key(&self) -> String {
        const NAMES: &[&str] = &[
            "model",
            "model_key",
            "gpu",
            "gpus",
            "nodes",
            "tp",
            "pp",
            "cp",
            "vpp",
            "ep",
            "dp",
            "fsdp",
            "fsdp_shard_size",
            "mbs",
            "gbs",
            "batch_accum",
            "seq_len",
            "recompute",
            "recompute_modules",
            "ac",
            "hidden_size",
            "num_layers",
            "num_params_B",
            "zero_stage",
            "num_microbatches",
            "local_batch",
            "grad_accum",
            "pp_schedule",
        ];
        let value = |name: &&str| self.get(name).map(|value| format!("{name}={value}"));
        NAMES.iter().filter_map(value).collect::<Vec<_>>().join(" ")
    }
}

/// The preset with a name like this: letters and digits alone are compared.
pub(super) fn preset(name: &str) -> Option<Architecture> {
    let plain =
        |text: &str| -> String { text.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect() };
    let wanted = plain(name);
    let found = presets()
        .iter()
        .filter(|preset| wanted.contains(&plain(&preset.id)))
        .max_by_key(|preset| preset.id.len())?;
    match &found.hf_config {
        Some(config) => import_hf(config).architecture,
        None => found.architecture.clone(),
    }
}

/// A dense decoder.
pub(super) struct Dense {
    pub layers: u64,
    pub hidden: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
    pub ffn: u64,
    pub vocabulary: u64,
    pub gated: bool,
    pub tied: bool,
}

impl Dense {
    pub(super) fn architecture(&self) -> Architecture {
        Architecture {
            num_layers: self.layers,
            hidden_size: self.hidden,
            ffn_hidden_size: self.ffn,
            vocab_size: self.vocabulary,
            attention: Attention::Gqa {
                heads: self.heads,
                kv_heads: self.kv_heads,
                head_dim: self.head_dim,
                rotary_dim: None,
                qk_norm: QkNorm::None,
                qkv_bias: !self.gated,
                out_bias: !self.gated,
                sinks: false,
                output_gate: false,
                values_are_keys: false,
                shared_kv: false,
            },
            other_mixers: Vec::new(),
            pattern: Vec::new(),
            moe: None,
            gated: self.gated,
            activation: if self.gated { Activation::Silu } else { Activation::Gelu },
            mlp_bias: !self.gated,
            norm: if self.gated { Norm::Rms } else { Norm::Layer },
            norm_eps: 1e-5,
            rope_theta: 10_000.0,
            tied_embeddings: self.tied,
            learned_positions: None,
            mtp_layers: 0,
            mtp_pattern: Vec::new(),
            mtp_shared: false,
            post_norms: false,
            hyper_connections: 0,
            attention_residuals: false,
            layer_inputs: None,
            alternating_updates: 0,
            residual_rank: 0,
            parts: std::collections::BTreeMap::new(),
        }
    }
}

/// Inputs of one GPU, to be changed by what a row says.
pub(super) fn inputs<'a>(
    model: &'a Architecture,
    gpu_name: &str,
    profile: &str,
    world: u64,
) -> Result<Inputs<'a>, String> {
    let plain = gpu_name.to_lowercase();
    let id = match plain.as_str() {
        "h100" => "h100-sxm",
        "a100" | "a100-80gb" => "a100-80gb-sxm",
        other => other,
    };
    let gpu = gpu(id).ok_or_else(|| format!("`{gpu_name}` is not a GPU of the catalogue"))?;
    let profile = table().profile(profile).ok_or_else(|| format!("`{profile}` is not a software profile"))?;
    Ok(Inputs {
        model,
        vocabulary: model.vocab_size,
        gpu,
        memory_gbs: None,
        clock: None,
        domain: gpu.nvlink_domain,
        nic_gbps: gpu.nic_gbps,
        world,
        tp: 1,
        sp: true,
        cp: 1,
        cp_kind: CpKind::P2p,
        pp: 1,
        vpp: 1,
        schedule: Schedule::OneFOneB,
        ep: 1,
        etp: 1,
        strides: Strides::usual(world, 1, 1, 1, 1),
        replicas: 1,
        gathers: 0.0,
        by_layer: false,
        seq_len: 4096,
        mbs: 1,
        gbs: 1,
        numbers: Numbers::Bf16,
        gradient_bytes: 4.0,
        parameter_bytes: 2.0,
        distributed: true,
        recompute: Recompute::default(),
        fused_loss: true,
        low_attention: false,
        low_head: false,
        imbalance: 1.0,
        frozen: false,
        gathered_share: 1.0,
        host: HostBytes::default(),
        software: SoftwareFacts::of(profile),
    })
}

impl Row {
    /// The case of a row that became a plan.
    pub(super) fn case_of(&self, plan: &Plan, family: &str, measured: f64) -> Result<Case, String> {
        let profile = profile(plan).ok_or("no such software profile")?;
        let mixture = plan.model.moe.is_some() || !plan.model.other_mixers.is_empty();
        let (world, gpu, training) = (plan.world_size(), plan.cluster.gpu.id, &plan.training);
        Ok(Case {
            id: self.id(),
            dataset: String::new(),
            family: family.to_owned(),
            gpu,
            gpus: world,
            key: self.key(),
            group: format!("{family} {world} x {gpu} {} x {}", training.global_batch_size, training.seq_len),
            printed_tokens: false,
            quantity: Quantity::Step,
            measured,
            excluded: None,
            class: residual_class(profile, mixture).to_owned(),
            setup: setup(plan)?,
        })
    }

    /// A case of these inputs, with equal stages. Strides and schedule follow from the sizes.
    pub(super) fn case(&self, inputs: Inputs<'_>, family: &str, measured: f64) -> Result<Case, String> {
        let equal = |shape: &ModelShape, stages: u64| {
            Stages::consecutive(shape, stages).unwrap_or_else(|| Stages::spread(shape, stages))
        };
        self.placed_case(inputs, family, measured, equal)
    }

    /// The same with stages as `placed` cuts a model of a shape into a number of them.
    pub(super) fn placed_case(
        &self,
        mut inputs: Inputs<'_>,
        family: &str,
        measured: f64,
        placed: impl Fn(&ModelShape, u64) -> Stages,
    ) -> Result<Case, String> {
        let ranks = inputs.tp * inputs.cp * inputs.pp;
        if inputs.world == 0 || !inputs.world.is_multiple_of(ranks) {
            return Err(format!("{} ranks can't be split {ranks} ways", inputs.world));
        }
        inputs.strides = Strides::usual(inputs.world, inputs.tp, inputs.pp, inputs.etp, inputs.ep);
        if inputs.vpp > 1 {
            inputs.schedule = Schedule::Interleaved;
        }
        let shape = ModelShape::of(inputs.model, inputs.vocabulary);
        let stages = placed(&shape, inputs.pp);
        let mixture = inputs.model.moe.is_some() || !inputs.model.other_mixers.is_empty();
        let batch = format!("{} x {}", inputs.gbs, inputs.seq_len);
        Ok(Case {
            id: self.id(),
            dataset: String::new(),
            family: family.to_owned(),
            gpu: inputs.gpu.id,
            gpus: inputs.world,
            key: self.key(),
            group: format!("{family} {} x {} {batch}", inputs.world, inputs.gpu.id),
            printed_tokens: false,
            quantity: Quantity::Step,
            measured,
            excluded: None,
            class: residual_class(inputs.software.profile, mixture).to_owned(),
            setup: Setup::new(&inputs, shape, stages)?,
        })
    }
}
