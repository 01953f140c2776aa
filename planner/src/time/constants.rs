//! The constants of the time model: what each means, where it comes from, and which GPU and which software takes
//! which. One data file holds them; `cargo xtask fit` writes their values.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::cluster::Gpu;
use crate::data;
use crate::json::by_field::by_field;

macro_rules! roles {
    ($($role:ident = $name:literal: $doc:literal,)*) => {
        /// The part that a constant plays in the formulas.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum ConstantRole { $(#[doc = $doc] $role,)* }

        impl ConstantRole {
            /// All, in the order of their numbers.
            pub const ALL: &[ConstantRole] = &[$(ConstantRole::$role,)*];

            /// The name in the data file.
            pub const fn name(self) -> &'static str {
                match self { $(ConstantRole::$role => $name,)* }
            }
        }
    };
}

roles! {
    GemmBf16 = "gemm_bf16": "Share of the bf16 peak that large GEMMs sustain.",
    GemmFp8 = "gemm_fp8": "Share of the fp8 peak with scales per tensor.",
    GemmMxfp8 = "gemm_mxfp8": "Share of the fp8 peak with scales per block.",
    GemmFp8Rows = "gemm_fp8_rows": "Share of the fp8 peak with scales per row.",
    GemmFp4 = "gemm_fp4": "Share of the fp4 peak.",
    Clock = "clock": "Clock under load over that of the usual product with this chip.",
    DepthFill = "depth_fill": "Elements of the inner dimension that filling a GEMM's pipeline costs.",
    WaveFill = "wave_fill": "Weight of the last, unfilled wave of output tiles.",
    MemoryShare = "memory_share": "Share of the memory bandwidth that streaming kernels reach.",
    Attention = "attention": "Share of the bf16 peak that the attention kernel reaches.",
    ShortSequence = "short_sequence": "Keys at which attention reaches half of its rate for long sequences.",
    FewHeads = "few_heads": "Loss of attention when a rank has few heads of 4,096 queries.",
    Bmm = "bmm": "Share of the bf16 peak of unfused attention's batched GEMMs.",
    Scan = "scan": "Share of the bf16 peak of state-space scans and delta rules.",
    Traffic = "traffic": "Memory traffic of norms, activations and residuals over a well-fused implementation's.",
    MoeTraffic = "moe_traffic": "Memory traffic of sorting tokens and of expert activations over the ideal.",
    BiasTraffic = "bias_traffic": "Memory passes over experts' activations that biases and clamping add.",
    OptimizerTraffic = "optimizer_traffic": "Memory traffic of the optimizer over that of one kernel.",
    QuantizeTraffic = "quantize_traffic": "Memory traffic of quantizing over the ideal.",
    NvlinkShare = "nvlink_share": "Share of the link bandwidth in an NVLink domain that collectives reach.",
    NicShare = "nic_share": "Share of the network bandwidth that collectives reach.",
    AllToAll = "all_to_all": "Further share that the dispatcher's all-to-all reaches.",
    StepIn = "step_in": "Seconds of a ring step in a domain.",
    StepOut = "step_out": "Seconds of a hop of a ring between domains, and of a message of an all-to-all.",
    BucketStep = "bucket_step": "Seconds of a hop between domains on the ring of a gradient bucket.",
    LowLatency = "low_latency": "Whether a bucket may go by NCCL's protocol LL128 (1), or goes by Simple (0).",
    BucketElements = "bucket_elements": "Elements of a gradient bucket at least.",
    BucketPerRank = "bucket_per_rank": "Elements of a bucket at least for each data-parallel rank.",
    SliceCopy = "slice_copy": "Seconds to take a rank's part of a tensor out for a collective over lists of parts.",
    GatherElements = "gather_elements": "Elements of parameters that are gathered in one call after a step, at least.",
    Launch = "launch": "Seconds to start a collective.",
    HostLayer = "host_layer": "Host seconds to launch a layer's mixer and dense part, forward and backward.",
    HostMoe = "host_moe": "Host seconds to launch a layer's experts, forward and backward.",
    HostMoeFlex = "host_moe_flex": "The same where the flex dispatcher sends tokens to them.",
    PowerSlack = "power_slack": "Power of the share of time under GEMMs and attention by which they take less time.",
    KernelGap = "kernel_gap": "GPU time between kernels and at their ends, over the host's time to launch them.",
    HostExpert = "host_expert": "Host seconds to launch the kernels of one more expert of a rank, forward and backward, in 8 bits.",
    HostHead = "host_head": "Host seconds to launch embedding, output layer and loss of a micro batch.",
    HostTensor = "host_tensor": "Host seconds of the optimizer for each tensor.",
    HostSoftmax = "host_softmax": "Host seconds more of a layer's softmax, forward and backward, as single operations.",
    HostBlock = "host_block": "Seconds of a block of queries of a head in attention's backward, beside its work.",
    SameThread = "same_thread": "1 where the thread that launches also computes, as on a CPU: nothing hides launches.",
    HostTp = "host_tp": "Host seconds that each further tensor-parallel rank adds to a layer.",
    HostStalled = "host_stalled": "Host seconds that each further tensor-parallel rank adds on a slow network.",
    HostScoped = "host_scoped": "Share of host time left with parts captured as CUDA graphs.",
    HostIteration = "host_iteration": "Share of host time left with the whole iteration captured.",
    ExposedTp = "exposed_tp": "Share of tensor-parallel communication left exposed by overlap.",
    ExposedEp = "exposed_ep": "Share of the all-to-all left exposed by overlap.",
    ExposedCp = "exposed_cp": "Share of ring attention's sends left exposed.",
    DpWindow = "dp_window": "Share of the last backward that hides gradient reduction.",
    ExposedP2p = "exposed_p2p": "Share of pipeline sends left exposed by overlap.",
    FsdpContention = "fsdp_contention": "Slowdown of compute by the collectives beside it.",
    P2pLatency = "p2p_latency": "Seconds of a send between stages beside its bytes.",
    LossWaits = "loss_waits": "1 when the host waits for the GPU in the loss, so that it launches nothing beside the output layer.",
    P2pHost = "p2p_host": "1 when sends hold up the host in every layer's launch, as in eager frameworks.",
    HostLink = "host_link": "Bytes/s of copies between a GPU and its host, in one direction.",
    HostMemory = "host_memory": "Bytes/s that a GPU's share of its host reads and writes its memory with.",
    Fixed = "fixed": "Seconds of a step outside the model.",
}

/// Number of roles.
pub const ROLES: usize = ConstantRole::ALL.len();

/// One constant. Of those that are fitted `priors.json` says what they mean, and from where the fit began; no part of the program,
/// which would send it to every browser.
#[derive(Debug, Clone, Default)]
pub struct Constant {
    /// Name.
    pub name: String,
    /// Value.
    pub value: f64,
    /// Of one that is not fitted, its unit (`1` for shares and factors).
    pub unit: Option<String>,
    /// What it says.
    pub meaning: Option<String>,
    /// Where the value comes from.
    pub source: Option<String>,
    /// Whether likely ranges stand on steps that it decides, though it was not fitted to them.
    pub stands: bool,
}

by_field! { Constant { name, value; unit, meaning, source, stands } }

impl Constant {
    /// Whether measured rows decide it.
    pub(crate) fn is_fitted(&self) -> bool {
        self.meaning.is_none()
    }

    /// Whether measured rows say how far off it is.
    pub(crate) fn is_measured(&self) -> bool {
        self.is_fitted() || self.stands
    }
}

/// A kind of software: five facts that a recipe or log shows, and the constants that go with them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name for `software.profile`.
    pub name: String,
    /// What runs so, in words.
    pub title: String,
    /// Kernel of attention: unfused, fa2 or te.
    pub attention: String,
    /// What is captured as CUDA graphs: none, scoped or iteration; none for what the plan says.
    pub graphs: Option<String>,
    /// How tokens get to experts: alltoall or fused; none for what the plan says.
    pub dispatcher: Option<String>,
    /// What hides behind compute, of tp, ep, dp, reduce (of dp, the gradients alone), p2p; none for what the plan says.
    pub overlap: Option<Vec<String>>,
    /// Whether the kernels of weights' gradients add to the gradient buffer themselves.
    #[serde(default = "yes")]
    pub fused_gradients: bool,
    /// Whether norms, rotation, activation functions and the loss are a kernel each; otherwise they are chains of
    /// operations of which each reads and writes memory.
    #[serde(default = "yes")]
    pub fused_operations: bool,
    /// Software of the classes of `ranges.json`, by which likely ranges are found.
    pub class: String,
    /// The constant of each role that differs from the common one.
    pub constants: BTreeMap<String, String>,
}

const fn yes() -> bool {
    true
}

/// The data file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Every constant.
    pub constants: Vec<Constant>,
    /// What goes with every GPU and every software, unless a profile says otherwise. `{chip}` stands for the GPU's generation.
    pub common: BTreeMap<String, String>,
    /// Software profiles.
    pub profiles: Vec<Profile>,
}

/// The constant of every role, as numbers of the table's list.
pub type Chosen = [u16; ROLES];

impl Table {
    /// The profile of this name.
    pub fn profile(&self, name: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }

    /// Shipped values, in the order of the list.
    pub fn values(&self) -> Vec<f64> {
        self.constants.iter().map(|constant| constant.value).collect()
    }

    /// The constants that hold for a GPU under a profile, with this kernel of attention.
    ///
    /// # Errors
    /// The role or constant that the data file lacks.
    pub fn choose(&self, gpu: &Gpu, profile: &Profile, attention: &str) -> Result<Chosen, String> {
        let mut chosen = [0; ROLES];
        for &role in ConstantRole::ALL {
            let named = match role {
                ConstantRole::Clock => gpu.clock.or(Some("one")),
                ConstantRole::HostLink if gpu.host_link.is_some() => gpu.host_link,
                ConstantRole::HostMemory if gpu.host_link.is_some() => Some("host_memory_grace"),
                _ => profile
                    .constants
                    .get(role.name())
                    .or_else(|| self.common.get(role.name()))
                    .map(String::as_str),
            };
            let named = named.ok_or_else(|| format!("no constant for `{}`", role.name()))?;
            // Looked up for every plan that is estimated, and few names have something that stands for another word.
            let named = match named.contains('{') {
                true => {
                    Cow::Owned(named.replace("{kernel}", attention).replace("{chip}", gpu.generation.name()))
                }
                false => Cow::Borrowed(named),
            };
            let at = self.constants.iter().position(|constant| constant.name == named);
            let at = at.ok_or_else(|| format!("`{named}` is not a constant"))?;
            if let Some(slot) = chosen.get_mut(role as usize) {
                *slot = at as u16;
            }
        }
        Ok(chosen)
    }
}

/// Standard deviations of the likely range: nine of ten steps.
pub(crate) const RANGE: f64 = 1.64;

/// The table that is part of the program.
pub fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        crate::json::read_json(data::text(data::File::Constants)).unwrap_or_else(|_| Table {
            // Unreachable: a test reads the file.
            constants: Vec::new(),
            common: BTreeMap::new(),
            profiles: Vec::new(),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn programs_are_known_by_profiles_that_there_are() {
        for name in crate::software::PROGRAMS.iter().flat_map(|program| program.profiles) {
            assert!(table().profile(name).is_some(), "{name}");
        }
    }

    #[test]
    fn every_constant_says_what_it_means_and_where_it_comes_from() {
        let priors: Vec<serde_json::Value> = serde_json::from_str(include_str!("priors.json")).unwrap();
        let of =
            |prior: &serde_json::Value, field: &str| prior[field].as_str().unwrap_or_default().to_owned();
        let known: BTreeSet<String> = priors.iter().map(|prior| of(prior, "name")).collect();
        assert_eq!(known.len(), priors.len());
        for prior in &priors {
            assert!(
                ["unit", "meaning", "source"].iter().all(|field| !of(prior, field).is_empty()),
                "{prior}"
            );
            assert!(
                prior["prior"].as_f64().unwrap() > 0.0 && prior["width"].as_f64().unwrap() > 0.0,
                "{prior}"
            );
        }
        let fitted = table().constants.iter().filter(|constant| constant.is_fitted());
        assert_eq!(fitted.map(|constant| constant.name.clone()).collect::<BTreeSet<_>>(), known);
        for constant in table().constants.iter().filter(|constant| !constant.is_fitted()) {
            assert!(constant.unit.is_some() && constant.source.is_some(), "{constant:?}");
        }
    }
}
