//! Families of models by a table: what each calls its sizes (`families.txt`), and what its class has where a config.json
//! leaves a key out (`classes.txt`). A family is a row; its parts are `role`s, each an expression over keys.

use serde_json::Value;

use super::expression::{Names, evaluate};
use super::reader::Reader;
use crate::data::{File, text};
use crate::model::{
    Activation, Architecture, Attention, Branches, DeltaNet, Extra, ExtraAt, Indexer, KimiDelta, LayerKind,
    Listed, ListedCut, ListedParameter, MAX_LAYERS, Mamba2, Mixer, Mlp, Moe, Norm, Positions, QkNorm, Rope,
    Routing, Score, Scores, fold,
};

/// Rows of families: names with commas between, the row that they start from, roles.
fn rows() -> std::str::Lines<'static> {
    text(File::Families).lines()
}

/// What the classes of transformers have where a config.json is silent: a model type, then `key=value`, sizes alone.
fn classes() -> std::str::Lines<'static> {
    text(File::Classes).lines()
}

/// Other names by which the classes of transformers take some of their sizes (`attribute_map`, and what files of older releases have).
const ALIASES: &[(&str, &[&str])] = &[
    ("attention_heads", &["num_attention_heads"]),
    ("d_model", &["hidden_size"]),
    ("hidden_size", &["n_embed"]),
    ("moe_k", &["num_experts_per_tok"]),
    ("moe_num_experts", &["num_experts"]),
    ("moe_topk", &["num_experts_per_tok"]),
    ("n_embd", &["hidden_size"]),
    ("n_head", &["num_attention_heads"]),
    ("n_heads", &["num_attention_heads"]),
    ("n_layer", &["num_hidden_layers"]),
    ("n_layers", &["num_hidden_layers"]),
    ("n_positions", &["max_position_embeddings"]),
    ("n_routed_experts", &["num_local_experts", "num_experts"]),
    ("num_experts", &["num_local_experts", "n_routed_experts"]),
    ("num_local_experts", &["num_experts"]),
];

/// The same of these model types alone; others have both, and mean something else by each.
const ALIASES_OF: (&[&str], &[(&str, &[&str])]) = (
    &["gpt_neo", "xglm"],
    &[("num_heads", &["num_attention_heads"]), ("num_layers", &["num_hidden_layers"])],
);

/// Puts what a model type's class has into a config.json that leaves it out; the keys that were put in.
pub(super) fn fill(config: &mut serde_json::Map<String, Value>, model_type: &str) -> Vec<&'static str> {
    let line = classes().find_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        (name == model_type).then_some(rest)
    });
    let mut filled = Vec::new();
    for (key, value) in line.unwrap_or_default().split(' ').filter_map(|word| word.split_once('=')) {
        if config.contains_key(key) {
            continue;
        }
        // What the file says by another name is said.
        let own = if ALIASES_OF.0.contains(&model_type) { ALIASES_OF.1 } else { &[] };
        let mut aliases = ALIASES.iter().chain(own);
        let others = aliases.find(|(name, _)| *name == key).map_or(&[][..], |(_, others)| *others);
        let said = others.iter().find(|other| config.get(**other).is_some_and(Value::is_u64));
        // And no more by that one, which the class does not have.
        if let Some(said) = said.and_then(|other| config.remove(*other)) {
            config.insert(key.to_owned(), said);
        } else if let Ok(value) = serde_json::from_str(value) {
            config.insert(key.to_owned(), value);
            filled.push(key);
        }
    }
    filled
}

/// What stands in a row in the place of roles where a kind of model is not planned.
const REFUSED: &str = " !";

/// Most mixers of a family.
const MIXERS: usize = 4;

/// A row of the table, with those that it starts from.
pub(super) struct Family {
    /// Words of the row and of those before it, the nearest first.
    words: Vec<&'static str>,
}

/// Names of all rows that are model types.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let all = rows().filter_map(|line| line.split(' ').next()).flat_map(|names| names.split(','));
    all.filter(|name| !name.is_empty() && !name.starts_with('_'))
}

/// Whether a row has this name.
fn is_of(line: &str, name: &str) -> bool {
    line.split(' ').next().is_some_and(|names| names.split(',').any(|one| one == name))
}

fn row(name: &str) -> Option<std::str::Split<'static, char>> {
    rows().find(|line| is_of(line, name)).map(|line| {
        let mut words = line.split(' ');
        words.next();
        words
    })
}

/// The part that keeps a model type from being planned, where it is one of those.
pub(super) fn refused(name: &str) -> Option<&'static str> {
    let line = rows().find(|line| is_of(line, name))?;
    line.split_once(REFUSED).map(|(_, part)| part)
}

/// The family of a model type.
pub(super) fn find(name: &str) -> Option<Family> {
    let mut words = Vec::new();
    let mut rest = row(name)?;
    // A row that starts from another names it first.
    while let Some(first) = rest.next() {
        if first.contains('=') {
            words.push(first);
            words.extend(rest);
            break;
        }
        words.extend(rest);
        rest = row(first)?;
    }
    Some(Family { words })
}

impl Family {
    fn role(&self, name: &str) -> Option<&'static str> {
        let of = |word: &&'static str| {
            word.split_once('=').filter(|(role, _)| *role == name).map(|(_, text)| text)
        };
        self.words.iter().find_map(of)
    }
}

/// Whether a config.json has the keys that say a decoder's sizes, by the names that most give them.
pub(super) fn looks_like_a_decoder(config: &serde_json::Map<String, Value>) -> bool {
    let needed = [
        ["num_hidden_layers", "n_layer", "num_layers", "n_layers"],
        ["hidden_size", "n_embd", "d_model", "dim"],
        ["num_attention_heads", "n_head", "n_heads", "num_heads"],
        ["vocab_size", "vocab_size", "vocab_size", "vocab_size"],
    ];
    let encodes = config.get("is_encoder_decoder").and_then(Value::as_bool) == Some(true);
    !encodes
        && needed.iter().all(|names| names.iter().any(|name| config.get(*name).is_some_and(Value::is_u64)))
}

struct Build<'r> {
    reader: &'r mut Reader,
    family: Family,
    roles: Vec<(&'static str, f64)>,
    layer: Option<u64>,
}

/// A model of the family.
pub(super) fn build(reader: &mut Reader, family: Family) -> Architecture {
    let mut build = Build { reader, family, roles: Vec::new(), layer: None };
    build.model()
}

impl Build<'_> {
    fn text(&self, role: &str) -> Option<&'static str> {
        self.family.role(role)
    }

    /// The value of an expression, and the last key that it looked at.
    fn value(&mut self, text: &str) -> (Option<f64>, String) {
        let mut key = String::new();
        let names = Names { roles: &self.roles, layer: self.layer };
        let value = evaluate(self.reader, &names, text, &mut key);
        (value, key)
    }

    fn real(&mut self, role: &str) -> Option<f64> {
        let text = self.text(role)?;
        self.value(text).0
    }

    fn number(&mut self, role: &str) -> u64 {
        self.real(role).map_or(0, |value| value as u64)
    }

    fn some(&mut self, role: &str) -> Option<u64> {
        self.real(role).map(|value| value as u64).filter(|&value| value > 0)
    }

    fn flag(&mut self, role: &str) -> bool {
        self.real(role).is_some_and(|value| value != 0.0)
    }

    /// A whole number of at least 1 that must be there, known by its role from now on.
    fn need(&mut self, role: &'static str) -> u64 {
        let text = self.text(role).unwrap_or(role);
        let (value, key) = self.value(text);
        let found = match value {
            None => {
                self.reader.missing(&key);
                1.0
            }
            Some(value) if value >= 1.0 && value.fract() == 0.0 => value,
            Some(_) => {
                let key = if key.is_empty() { role } else { key.as_str() };
                self.reader.wrong_type(key, "a whole number of at least 1");
                1.0
            }
        };
        self.roles.push((role, found));
        found as u64
    }

    fn model(&mut self) -> Architecture {
        let (num_layers, hidden_size) = (self.need("layers"), self.need("hidden"));
        let (vocab_size, heads) = (self.need("vocab"), self.need("heads"));
        self.need("kv");
        self.need("dim");
        let ffn = self.need("ffn");
        let attention = match self.mixer(0) {
            Some(Mixer::Attention(attention)) => attention,
            _ => Attention::grouped(heads, heads, (hidden_size / heads).max(1)),
        };
        let mut architecture = Architecture::of(num_layers, hidden_size, ffn, vocab_size, attention);
        if self.text("0.kind").is_some() {
            architecture.other_mixers.extend(self.mixer(0));
        }
        for number in 1..MIXERS {
            match self.mixer(number) {
                Some(mixer) => architecture.other_mixers.push(mixer),
                None => break,
            }
        }
        architecture.gated = self.flag("gated");
        architecture.activation = self.activation();
        architecture.mlp_bias = self.flag("mlp_bias");
        architecture.norm = self.norm();
        if let Some(eps) = self.real("eps").filter(|&eps| eps > 0.0) {
            architecture.norm_eps = eps;
        }
        architecture.rope_theta = self.real("theta").filter(|&theta| theta > 0.0).unwrap_or(10_000.0);
        if self.flag("embed_root") {
            architecture.embedding_multiplier = libm::sqrt(hidden_size as f64);
        }
        architecture.logit_multiplier = self.real("logits").unwrap_or(1.0);
        architecture.tied_embeddings = self.flag("tie");
        architecture.learned_positions = self.some("positions");
        architecture.post_norms = self.flag("post");
        architecture.no_pre_norms = self.flag("nopre");
        architecture.no_final_norm = self.flag("nofinal");
        architecture.embedding_norm = self.flag("embedding_norm");
        architecture.head_bias = self.flag("head_bias");
        architecture.branches = match self.number("branches") {
            0 => Branches::InTurn,
            1 => Branches::SideBySide,
            _ => Branches::OneNorm,
        };
        architecture.moe = self.experts();
        architecture.extras = self.extras();
        self.refuse();
        architecture.hyper_connections = self.number("copies");
        architecture.hyper_unmixed = self.flag("unmixed");
        architecture.layers_together = self.number("together").max(1);
        if architecture.layers_together > 1 {
            let message = format!(
                "a layer of this family is {} here, which no stage parts: {num_layers} in all; choices that hand a token on as it is have no parameters",
                architecture.layers_together
            );
            self.reader.note("num_layers", "layers that belong together", message);
        }
        let kinds = self.kinds(num_layers, architecture.moe.is_some(), self.text("0.kind").is_some());
        architecture.pattern = fold(&kinds);
        architecture
    }

    /// Settings with which a family is another that is not planned: expressions between semicolons.
    fn refuse(&mut self) {
        for text in self.text("no").unwrap_or_default().split(';') {
            let (value, key) = self.value(text);
            if value.is_some_and(|value| value != 0.0) {
                let message = format!(
                    "`{key}` of this config.json gives parameters that can't be planned for this family yet"
                );
                self.reader.refuse(&key, "parts of models that are not planned", message);
            }
        }
    }

    fn kinds(&mut self, layers: u64, experts: bool, other: bool) -> Vec<LayerKind> {
        let mut kinds = Vec::new();
        for layer in 0..layers.min(MAX_LAYERS) {
            self.layer = Some(layer);
            let mlp = match () {
                () if self.flag("no_mlp") => Mlp::None,
                () if !experts => Mlp::Dense,
                () if self.flag("dense") => Mlp::Dense,
                () => Mlp::Moe,
            };
            let mut mixer = self.number("mixer") + u64::from(other);
            if other && self.text("mixer").is_none() {
                mixer = 1;
            }
            let (ffn, unnormed) = (self.some("layer_ffn"), self.flag("unnormed"));
            kinds.push(LayerKind { ffn, unnormed, ..LayerKind::new(Some(mixer), mlp) });
        }
        self.layer = None;
        if !experts && kinds.iter().all(|kind| *kind == LayerKind::DENSE) {
            return Vec::new();
        }
        kinds
    }

    fn activation(&mut self) -> Activation {
        let key = self.text("act").unwrap_or("hidden_act");
        let (key, usual) = key.split_once(':').unwrap_or((key, "silu"));
        let named = self.reader.present(key).map(|value| value.as_str().unwrap_or_default().to_owned());
        let word = named.as_deref().unwrap_or(usual);
        match word {
            "silu" | "swish" | "swiglu" => Activation::Silu,
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Activation::Gelu,
            "gelu" => Activation::GeluErf,
            "quick_gelu" => Activation::QuickGelu,
            "relu" => Activation::Relu,
            "relu2" => Activation::SquaredRelu,
            "xielu" => Activation::Xielu,
            "swigluoai" => Activation::GptOss,
            "situ" => Activation::Situ,
            _ => {
                let message =
                    "this activation is planned as one of the same sizes and another function".to_owned();
                self.reader.note(key, "activations by size", message);
                Activation::Other
            }
        }
    }

    fn norm(&mut self) -> Norm {
        match self.number("norm") {
            0 => Norm::Rms,
            1 => Norm::Layer,
            2 => Norm::LayerWeight,
            3 => Norm::PlainRms,
            _ => Norm::PlainLayer,
        }
    }

    fn experts(&mut self) -> Option<Moe> {
        let experts = self.some("experts")?;
        self.roles.push(("experts", experts as f64));
        let top_k = self.need("top_k");
        let ffn_hidden_size = self.need("expert_ffn");
        let usual = Routing::default();
        Some(Moe {
            experts,
            top_k,
            ffn_hidden_size,
            shared_ffn_hidden_size: self.number("shared"),
            shared_gate: self.flag("shared_gate"),
            router_bias: self.flag("router_bias"),
            latent_size: None,
            latent_norm: false,
            scaled_branches: false,
            weighs_inputs: self.flag("weighs_inputs"),
            identity_experts: self.number("identity"),
            router_bias_buffer: if self.flag("bias_buffer") {
                experts.saturating_add(self.number("identity"))
            } else {
                0
            },
            routing: Routing {
                score: match self.number("score") {
                    0 => Score::Softmax,
                    1 => Score::Sigmoid,
                    2 => Score::SqrtSoftplus,
                    _ => Score::SparseMixer,
                },
                normalize: self.flag("normalize"),
                scale: self.real("scale").unwrap_or(1.0),
                groups: self.number("groups").max(1),
                group_top_k: self.number("top_groups").max(1),
                ..usual
            },
        })
    }

    /// The role of a mixer by itself, else the one for all.
    fn own(&self, number: usize, role: &str) -> Option<&'static str> {
        self.text(&format!("{number}.{role}")).or_else(|| self.text(role))
    }

    fn own_real(&mut self, number: usize, role: &str) -> Option<f64> {
        let text = self.own(number, role)?;
        self.value(text).0
    }

    fn own_some(&mut self, number: usize, role: &str) -> Option<u64> {
        self.own_real(number, role).map(|value| value as u64).filter(|&value| value > 0)
    }

    fn own_number(&mut self, number: usize, role: &str) -> u64 {
        self.own_some(number, role).unwrap_or(0)
    }

    fn own_flag(&mut self, number: usize, role: &str) -> bool {
        self.own_number(number, role) > 0
    }

    /// A mixer of the family; none after its last.
    fn mixer(&mut self, number: usize) -> Option<Mixer> {
        let there = |word: &&str| word.split_once('.').is_some_and(|(of, _)| of.parse() == Ok(number));
        if number > 0 && !self.family.words.iter().any(there) {
            return None;
        }
        let kind = self.own(number, "kind").unwrap_or("gqa");
        let kind = if number > 0 || self.text("0.kind").is_some() {
            kind
        } else {
            self.text("kind").unwrap_or("gqa")
        };
        Some(match kind {
            "mla" => Mixer::Attention(self.latent(number)),
            "listed" => Mixer::Listed(self.listed(number)),
            "mamba2" => Mixer::Mamba2(Mamba2 {
                heads: self.own_number(number, "m_heads"),
                head_dim: self.own_number(number, "m_dim"),
                groups: self.own_number(number, "m_groups"),
                state: self.own_number(number, "m_state"),
                conv_kernel: self.own_number(number, "m_conv"),
                conv_bias: self.own_flag(number, "m_conv_bias"),
                proj_bias: self.own_flag(number, "m_bias"),
                out_norm: true,
            }),
            "kda" => Mixer::KimiDelta(KimiDelta {
                heads: self.own_number(number, "m_heads"),
                head_dim: self.own_number(number, "m_dim"),
                conv_kernel: self.own_number(number, "m_conv"),
                full_rank_gate: true,
                full_rank_decay: true,
            }),
            "delta" => Mixer::DeltaNet(DeltaNet {
                key_heads: self.own_number(number, "m_key_heads"),
                value_heads: self.own_number(number, "m_heads"),
                key_dim: self.own_number(number, "m_key_dim"),
                value_dim: self.own_number(number, "m_dim"),
                conv_kernel: self.own_number(number, "m_conv"),
            }),
            _ => Mixer::Attention(self.grouped(number)),
        })
    }

    fn grouped(&mut self, number: usize) -> Attention {
        let head_dim = self.own_number(number, "dim");
        let value_dim = self.own_some(number, "value_dim").filter(|&width| width != head_dim);
        // Angles are for pairs of channels: an odd one takes its neighbour along.
        let share = self.own_real(number, "rotated");
        let rotated =
            share.map(|share| (share * head_dim as f64) as u64).map(|width| width.saturating_add(width % 2));
        let rotated = self.own_some(number, "turned").or(rotated);
        Attention::Gqa {
            heads: self.own_number(number, "heads"),
            kv_heads: self.own_number(number, "kv"),
            head_dim,
            rotary_dim: rotated.filter(|&width| width > 0 && width < head_dim),
            qk_norm: match self.own_number(number, "qk_norm") {
                0 => QkNorm::None,
                1 => QkNorm::PerHead,
                2 => QkNorm::PerHeadLayer,
                3 => QkNorm::Full,
                4 => QkNorm::EachHead,
                _ => QkNorm::Plain,
            },
            qkv_bias: self.own_flag(number, "qkv_bias"),
            out_bias: self.own_flag(number, "out_bias"),
            sinks: self.own_flag(number, "sinks"),
            output_gate: self.own_flag(number, "output_gate"),
            values_are_keys: self.own_flag(number, "values_are_keys"),
            value_norm: false,
            shared_kv: false,
            value_dim,
            head_gate: self.own_flag(number, "head_gate"),
            scores: self.scores(number),
        }
    }

    fn latent(&mut self, number: usize) -> Attention {
        let indexer = self
            .own_some(number, "index_heads")
            .map(|heads| Indexer { heads, head_dim: self.own_number(number, "index_dim") });
        Attention::Mla {
            heads: self.own_number(number, "heads"),
            q_lora_rank: self.own_some(number, "q_rank"),
            kv_lora_rank: self.own_number(number, "kv_rank"),
            qk_nope_dim: self.own_number(number, "nope_dim"),
            qk_rope_dim: self.own_number(number, "rope_dim"),
            v_dim: self.own_number(number, "value_dim"),
            qk_norm: true,
            indexer,
            output_gate: self.own_flag(number, "output_gate"),
            joint_gate: self.own_flag(number, "joint_gate"),
            sinks: self.own_flag(number, "sinks"),
            head_gate: self.own_flag(number, "head_gate"),
            scores: self.scores(number),
        }
    }

    fn scores(&mut self, number: usize) -> Scores {
        Scores {
            window: self.own_some(number, "window"),
            chunk: self.own_some(number, "chunk"),
            positions: match self.own_number(number, "at") {
                0 => Positions::Rotary,
                1 => Positions::None,
                _ => Positions::Alibi,
            },
            scale: self.own_real(number, "score_scale").filter(|&scale| scale > 0.0),
            soft_cap: self.own_real(number, "soft_cap").filter(|&cap| cap > 0.0),
            norm_after_rotation: self.own_flag(number, "norm_after_rotation"),
            // Of a mixer by itself alone: the first one's is the model's.
            rope: self.text(&format!("{number}.rope")).and_then(|text| {
                let theta = self.value(text).0.filter(|&theta| theta > 0.0)?;
                Some(Rope { theta, scaling: None })
            }),
            ..Scores::default()
        }
    }

    /// `NAME;HEADS;INNER;STATE;CONV;` and parameters as `O:name:dim,dim` (cut by outputs), `I:` (by inputs), `W:` (whole).
    fn listed(&mut self, number: usize) -> Listed {
        let text = self.own(number, "listed").unwrap_or_default();
        let mut parts = text.split(';');
        let name = parts.next().unwrap_or_default().replace('_', " ");
        let mut next = |build: &mut Self| {
            let text = parts.next().unwrap_or_default();
            build.value(text).0.map_or(0, |value| value as u64)
        };
        let (heads, inner) = (next(self), next(self));
        self.roles.push(("inner", inner as f64));
        let (state, conv_kernel) = (next(self), next(self));
        let mut parameters = Vec::new();
        for part in parts {
            let mut fields = part.split(':');
            let cut = match fields.next() {
                Some("O") => ListedCut::Outputs,
                Some("I") => ListedCut::Inputs,
                _ => ListedCut::Whole,
            };
            let name = fields.next().unwrap_or_default().to_owned();
            let shape = self.shape(fields.next().unwrap_or_default());
            // A size of 0 says that there is none.
            if !shape.contains(&0) {
                parameters.push(ListedParameter { name, cut, shape });
            }
        }
        self.roles.retain(|(role, _)| *role != "inner");
        Listed { name, parameters, heads, inner, state, conv_kernel }
    }

    /// Sizes between commas that stand in no bracket.
    fn shape(&mut self, text: &str) -> Vec<u64> {
        let mut open = 0_i32;
        let dims = text.split(|sign: char| {
            open += i32::from(sign == '(') - i32::from(sign == ')');
            open == 0 && sign == ','
        });
        dims.map(|dim| self.value(dim).0.map_or(0, |value| value as u64)).collect()
    }

    /// `at:name:dim,dim`, several between semicolons.
    fn extras(&mut self) -> Vec<Extra> {
        let mut found = Vec::new();
        for part in self.text("extras").unwrap_or_default().split(';').filter(|part| !part.is_empty()) {
            let mut fields = part.split(':');
            let at = match fields.next() {
                Some("embedding") => ExtraAt::Embedding,
                Some("head") => ExtraAt::Head,
                Some("mixer") => ExtraAt::Mixer,
                Some("attention") => ExtraAt::Attention,
                Some("other_mixer") => ExtraAt::OtherMixer,
                Some("mlp") => ExtraAt::Mlp,
                Some("experts") => ExtraAt::Experts,
                _ => ExtraAt::Layer,
            };
            let name = fields.next().unwrap_or_default().to_owned();
            let shape = self.shape(fields.next().unwrap_or_default());
            if !shape.contains(&0) {
                found.push(Extra { name, at, shape });
            }
        }
        found
    }
}
