//! The recipe of Megatron Bridge for a model, GPU, count, precision and release: the nearest where there is none.

use std::cmp::Ordering;
use std::sync::OnceLock;

use super::{Among, Recipe, Recomputed, Wanted};
use crate::data::{File, text};
use crate::settings::{CrossEntropy, CudaGraphs, Dispatcher, FlexBackend};
use crate::units::Dtype;

const SOURCE: &str = "recipes of NVIDIA-NeMo/Megatron-Bridge to 067f987df03b";

/// A model of the table.
#[derive(Debug, Clone, Copy)]
struct Model<'a> {
    preset: &'a str,
    sizes: [u64; 3],
}

/// A line: a model on a number of GPUs in some precisions.
#[derive(Debug, Clone, Copy)]
struct Line<'a> {
    model: Model<'a>,
    gpu: &'a str,
    world: u64,
    precisions: &'a str,
    settings: &'a str,
}

fn table() -> &'static str {
    text(File::Releases)
}

/// The lines of the table, read once.
fn lines() -> impl Iterator<Item = Line<'static>> {
    static LINES: OnceLock<Vec<Line<'static>>> = OnceLock::new();
    LINES.get_or_init(|| read().collect()).iter().copied()
}

fn read() -> impl Iterator<Item = Line<'static>> {
    let mut model = None;
    table().lines().filter(|line| !line.starts_with('#')).filter_map(move |line| {
        if let Some(named) = line.strip_prefix("= ") {
            let mut words = named.split(' ');
            let preset = words.next()?;
            let mut size = || words.next().and_then(|word| word.parse().ok());
            model = Some(Model { preset, sizes: [size()?, size()?, size()?] });
            return None;
        }
        let mut words = line.splitn(4, ' ');
        Some(Line {
            model: model?,
            gpu: words.next()?,
            world: words.next()?.parse().ok()?,
            precisions: words.next()?,
            settings: words.next()?,
        })
    })
}

/// How many times as large one number is as another, as a logarithm.
fn apart(one: u64, other: u64) -> f64 {
    libm::log(one.max(1) as f64 / other.max(1) as f64).abs()
}

impl Line<'_> {
    /// How far it is from what is wanted, the most telling first: model, GPU, precision, number of GPUs. Nothing where it is no nearer
    /// than what is known, which most lines are not by their first number.
    fn nearer(&self, wanted: &Wanted<'_>, known: Option<&[f64; 4]>) -> Option<[f64; 4]> {
        const FAR: [fn(&Line<'_>, &Wanted<'_>) -> f64; 4] = [
            |line, wanted| line.model_apart(wanted),
            |line, wanted| line.gpu_apart(wanted),
            |line, wanted| line.precision(wanted.precision).1,
            |line, wanted| apart(line.world, wanted.world),
        ];
        let (mut found, mut undecided) = ([0.0; 4], known);
        for (place, far) in FAR.into_iter().enumerate() {
            found[place] = far(self, wanted);
            match undecided.map(|known| found[place].total_cmp(&known[place])) {
                Some(Ordering::Greater) => return None,
                Some(Ordering::Less) => undecided = None,
                _ => {}
            }
        }
        undecided.is_none().then_some(found)
    }

    fn model_apart(&self, wanted: &Wanted<'_>) -> f64 {
        if wanted.preset == Some(self.model.preset) {
            return -1.0;
        }
        let [layers, hidden, experts] = self.model.sizes;
        let kind = if (experts > 0) == (wanted.sizes[2] > 0) { 0.0 } else { 100.0 };
        kind + apart(layers, wanted.sizes[0])
            + apart(hidden, wanted.sizes[1])
            + apart(experts, wanted.sizes[2])
    }

    fn gpu_apart(&self, wanted: &Wanted<'_>) -> f64 {
        match self.gpu == wanted.gpu {
            true => 0.0,
            false if self.is_blackwell() != wanted.blackwell => 3.0,
            false if self.is_superchip() != wanted.superchip => 2.0,
            false => 1.0,
        }
    }

    /// Whether the GPU stands on a board with a Grace CPU, in a domain of 72: its recipes have dispatcher, graphs and what waits on the host
    /// in common with the other such GPU's rather than with those of boards of eight.
    fn is_superchip(&self) -> bool {
        self.gpu.starts_with('g')
    }

    fn is_blackwell(&self) -> bool {
        self.gpu.contains('b')
    }

    /// Its precision nearest to one, and how far that is: another of 8 or 4 bits before 16 bits.
    fn precision(&self, wanted: &str) -> (&'static str, f64) {
        let names = ["bf16", "cs", "sc", "mx", "nv"];
        let has = |name: &&str| self.precisions.split(',').any(|one| one == *name);
        let far = |name: &str| -> f64 {
            match () {
                () if name == wanted => 0.0,
                () if (name == "bf16") == (wanted == "bf16") => 1.0,
                () => 2.0,
            }
        };
        let known = names.into_iter().filter(has).map(|name| (name, far(name)));
        known.min_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or(("bf16", 2.0))
    }

    /// The settings of a release: of the last change that is not later.
    fn of(&self, release: u32) -> &str {
        let mut found = "";
        for word in self.settings.split(' ') {
            let dated =
                word.split_once(':').filter(|(since, _)| since.starts_with(|c: char| c.is_ascii_digit()));
            match dated {
                None => found = word,
                Some((since, settings)) if number(since) <= release => found = settings,
                Some(_) => {}
            }
        }
        found
    }
}

/// A release as a number: 26.04.01 is 260401.
pub(crate) fn number(release: &str) -> u32 {
    let mut parts = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0).min(99));
    let mut next = || parts.next().unwrap_or(0);
    next() * 10_000 + next() * 100 + next()
}

/// The recipe for what is wanted.
pub(crate) fn recipe(wanted: &Wanted<'_>) -> Option<Recipe> {
    let wanted_among = |line: &Line<'_>| {
        wanted.among == Among::All || line.gpu_apart(wanted) > 0.0 || line.model_apart(wanted) > 0.0
    };
    let mut nearest = None;
    for line in lines().filter(wanted_among) {
        let far = line.nearer(wanted, nearest.as_ref().map(|(_, far)| far));
        nearest = far.map(|far| (line, far)).or(nearest);
    }
    let (line, [model, gpu, precision, count]) = nearest?;
    let same = model <= 0.0;
    let own = same && gpu == 0.0;
    let (letters, modules) = line.of(wanted.release).split_once(':').unwrap_or((line.of(wanted.release), ""));
    let dense = line.model.sizes[2] == 0;
    let mut rest = letters.chars();
    let graphs = match rest.next() {
        Some('s') => CudaGraphs::Scoped,
        Some('i') => CudaGraphs::Iteration,
        _ => CudaGraphs::None,
    };
    let has = |letter: char| rest.clone().any(|one| one == letter);
    let offloaded_layers = modules.strip_prefix(ON_HOST).and_then(|count| count.parse().ok()).filter(|_| own);
    let modules = if modules.starts_with(ON_HOST) { "" } else { modules };
    let flex = has('f');
    let low = wanted.precision != "bf16";
    Some(Recipe {
        name: format!(
            "{} on {} {}, {}",
            line.model.preset,
            line.world,
            line.gpu,
            named(line.precision(wanted.precision).0)
        ),
        source: SOURCE,
        nearest: !own || precision > 0.0 || count > 0.0,
        others: !own,
        // `recipes/deepseek/deepseek_v3.py`
        mtp_layers: (model <= 0.0 && line.model.preset == "deepseek-v3").then_some(1),
        graphs: Some(graphs),
        dispatcher: match (dense, flex) {
            (true, _) => None,
            (false, true) => Some(Dispatcher::Flex),
            (false, false) => Some(Dispatcher::AllToAll),
        },
        // DeepEP does not pad to capacity.
        backend: flex.then_some(if line.is_blackwell() || has('c') {
            FlexBackend::HybridEp
        } else {
            FlexBackend::DeepEp
        }),
        overlap_tp: dense,
        overlap_ep: has('e'),
        sharded: None,
        reduces_last: false,
        keeps_gathered: false,
        recompute: own.then(|| match modules {
            "" => Recomputed::Nothing,
            "full" => Recomputed::Full,
            modules => Recomputed::Modules(modules.split('+').map(str::to_owned).collect()),
        }),
        gradients: match () {
            () if has('2') => Some(Dtype::Bf16),
            () if has('4') => Some(Dtype::Fp32),
            () => None,
        },
        loss: Some(if has('n') { CrossEntropy::Native } else { CrossEntropy::Te }),
        attention: None,
        // What changes the numbers that training computes is the model's own.
        precision_aware: same && ['p', 'b', 'h'].into_iter().any(has),
        moments: (same && (has('b') || has('h'))).then_some(Dtype::Bf16),
        masters: (same && has('h')).then_some(Dtype::Fp16),
        capacity: (same && has('c')).then_some(PADDED),
        // The mixed-precision recipes of 8 bits gather parameters in them; current scaling leaves the first and the last
        // layer in bf16 (`training/mixed_precision.py`).
        low_gather: low && wanted.precision != "nv",
        bf16_ends: u64::from(wanted.precision == "cs"),
        low_attention: low && has('d'),
        low_output: low && has('o'),
        offloaded_layers: offloaded_layers.unwrap_or(0),
        every_second: false,
        compile: None,
    })
}

/// What stands before the number of layers whose activations wait on the host, in place of modules that are recomputed.
const ON_HOST: &str = "offload";

/// Tokens of an expert over the mean to which recipes pad.
const PADDED: f64 = 1.1;

/// A precision as plan files name it.
fn named(precision: &str) -> &'static str {
    match precision {
        "cs" => "fp8_current",
        "sc" => "fp8_blockwise",
        "mx" => "mxfp8",
        "nv" => "nvfp4",
        _ => "bf16",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{import_hf, presets};

    fn found(preset: &str, gpu: &str, world: u64, precision: &'static str, release: &str) -> Recipe {
        found_among(Among::All, preset, gpu, world, precision, release)
    }

    fn found_among(
        among: Among,
        preset: &str,
        gpu: &str,
        world: u64,
        precision: &'static str,
        release: &str,
    ) -> Recipe {
        let line = lines().find(|line| line.model.preset == preset);
        let sizes = line.map_or([40, 6000, 0], |line| line.model.sizes);
        let blackwell = gpu.starts_with('b') || gpu.starts_with("gb");
        recipe(&Wanted {
            preset: Some(preset),
            sizes,
            gpu,
            blackwell,
            superchip: gpu.starts_with('g'),
            world,
            precision,
            release: number(release),
            among,
        })
        .unwrap()
    }

    #[test]
    fn every_line_is_read() {
        let text = table().lines().filter(|line| !line.starts_with(['#', '=']));
        assert_eq!(lines().count(), text.count());
        for line in lines() {
            for word in line.settings.split(' ') {
                let settings = match word.split_once(':') {
                    Some((since, settings)) if since.contains('.') => settings,
                    _ => word,
                };
                let letters = settings.split(':').next().unwrap();
                assert!(letters.starts_with(['n', 's', 'i']), "{line:?}");
                assert!(letters[1..].chars().all(|one| "afe24pbhncdo".contains(one)), "{line:?}");
            }
        }
    }

    #[test]
    fn sizes_are_those_of_the_catalogue() {
        for line in lines() {
            let preset = presets().iter().find(|preset| preset.id == line.model.preset).unwrap();
            let model = match &preset.hf_config {
                Some(config) => import_hf(config).architecture.unwrap(),
                None => preset.architecture.clone().unwrap(),
            };
            let experts = model.moe.as_ref().map_or(0, |moe| moe.experts);
            assert_eq!(line.model.sizes, [model.num_layers, model.hidden_size, experts], "{}", preset.id);
        }
    }

    #[test]
    fn a_recipe_is_that_of_its_release() {
        let early = found("deepseek-v3", "b200", 256, "mx", "25.11");
        let later = found("deepseek-v3", "b200", 256, "mx", "26.04");
        let last = found("deepseek-v3", "b200", 256, "mx", "26.08");
        assert_eq!(
            (early.dispatcher, later.dispatcher),
            (Some(Dispatcher::AllToAll), Some(Dispatcher::Flex))
        );
        assert_eq!((later.graphs, later.overlap_ep), (Some(CudaGraphs::None), false));
        assert_eq!((last.graphs, last.overlap_ep), (Some(CudaGraphs::Scoped), true));
        let modules = ["mla_up_proj", "mlp"].map(str::to_owned).to_vec();
        assert_eq!(last.recompute, Some(Recomputed::Modules(modules)));
        assert!(!last.nearest && last.low_gather && last.gradients == Some(Dtype::Bf16), "{last:?}");
    }

    #[test]
    fn where_there_is_none_the_nearest_is_taken_and_named() {
        let other_count = found("llama-3-70b", "h100", 512, "bf16", "26.08");
        assert!(other_count.nearest && other_count.recompute.is_some(), "{other_count:?}");
        assert_eq!(other_count.name, "llama-3-70b on 64 h100, bf16");
        let other_gpu = found("llama-3-70b", "h200", 64, "bf16", "26.08");
        assert_eq!((other_gpu.name.as_str(), other_gpu.recompute), ("llama-3-70b on 64 h100, bf16", None));
        let other_model = found("phi-4", "b200", 64, "mx", "26.08");
        assert!(other_model.nearest && other_model.dispatcher.is_none(), "{other_model:?}");
        let other_precision = found("qwen3-30b-a3b", "h100", 16, "sc", "26.08");
        assert_eq!(other_precision.name, "qwen3-30b-a3b on 16 h100, fp8_current");
    }

    #[test]
    fn a_superchips_recipe_is_nearest_to_another_superchips_and_a_boards_to_a_boards() {
        for (gpu, nearest) in [("gb200", "gb300"), ("gb300", "gb200"), ("b200", "b300"), ("b300", "b200")] {
            let found = found_among(Among::Others, "deepseek-v3", gpu, 256, "mx", "26.04");
            assert_eq!(found.name, format!("deepseek-v3 on 256 {nearest}, mxfp8"));
        }
        // On another generation's GPU no board is nearer than another.
        let hopper = found_among(Among::Others, "deepseek-v3", "h100", 256, "bf16", "26.04");
        assert_eq!(hopper.name, "deepseek-v3 on 256 b200, bf16");
    }
}
