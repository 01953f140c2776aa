//! The framework that a plan names in `software.framework`, with its version: which names its options have, and whose recipe
//! holds.

mod programs;

#[cfg(test)]
pub(crate) use programs::PROGRAMS;
pub(crate) use programs::{Program, program};

use crate::cluster::{Generation, Gpu, gpu};
use crate::finding::{Finding, clip, nearest_names};
use crate::recipes::number as release_number;
use crate::runtime::Runtime;
use crate::wire::PlanFile;

/// A framework at a version whose names of options are known. Of each framework the newest release stands first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Framework {
    /// Megatron-LM, core_v0.19.0.
    MegatronLm,
    /// Megatron Bridge 0.6.0.
    Bridge,
    /// NeMo Automodel 0.7.0.
    Automodel,
    /// torchtitan 0.3.0: configurations in Python, batches counted in sequences.
    Torchtitan03,
    /// torchtitan 0.2.2: configurations in TOML.
    Torchtitan02,
    /// torchtitan's repository since 2026-08-20: batches counted in tokens.
    TorchtitanMain,
}

impl Framework {
    /// All of them.
    pub const ALL: [Framework; 6] = [
        Framework::MegatronLm,
        Framework::Bridge,
        Framework::Automodel,
        Framework::Torchtitan03,
        Framework::Torchtitan02,
        Framework::TorchtitanMain,
    ];

    /// The name of the framework alone.
    pub const fn product(self) -> &'static str {
        match self {
            Framework::MegatronLm => "megatron-lm",
            Framework::Bridge => "bridge",
            Framework::Automodel => "automodel",
            Framework::Torchtitan03 | Framework::Torchtitan02 | Framework::TorchtitanMain => "torchtitan",
        }
    }

    /// Name and version, as plan files have them.
    pub const fn name(self) -> &'static str {
        match self {
            Framework::MegatronLm => "megatron-lm core_v0.19",
            Framework::Bridge => "bridge 0.6",
            Framework::Automodel => "automodel 0.7",
            Framework::Torchtitan03 => "torchtitan 0.3",
            Framework::Torchtitan02 => "torchtitan 0.2",
            Framework::TorchtitanMain => "torchtitan main",
        }
    }
}

/// A framework, whatever its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Product {
    /// Megatron-LM.
    MegatronLm,
    /// Megatron Bridge.
    Bridge,
    /// NeMo, whose recipes Megatron Bridge took over.
    Nemo,
    /// NeMo Automodel.
    Automodel,
    /// torchtitan.
    Torchtitan,
    /// Shardplan's own executor.
    Worker,
}

impl Product {
    /// All of them.
    pub const ALL: [Product; 6] = [
        Product::MegatronLm,
        Product::Bridge,
        Product::Nemo,
        Product::Automodel,
        Product::Torchtitan,
        Product::Worker,
    ];

    /// Its name in plan files.
    pub const fn name(self) -> &'static str {
        match self {
            Product::MegatronLm => "megatron-lm",
            Product::Bridge => "bridge",
            Product::Nemo => "nemo",
            Product::Automodel => "automodel",
            Product::Torchtitan => "torchtitan",
            Product::Worker => "worker",
        }
    }

    /// The runtimes that it trains with.
    pub const fn runtimes(self) -> &'static [Runtime] {
        match self {
            Product::MegatronLm | Product::Bridge | Product::Nemo => {
                &[Runtime::Megatron, Runtime::MegatronFsdp]
            }
            Product::Automodel => &[Runtime::Fsdp2, Runtime::MegatronFsdp],
            Product::Torchtitan => &[Runtime::Fsdp2],
            Product::Worker => &[Runtime::Native, Runtime::Fsdp2, Runtime::MegatronFsdp],
        }
    }

    /// Whether it trains on GPUs of a generation. NVIDIA's frameworks need CUDA, NCCL and Transformer Engine, and their container has
    /// them; Megatron-LM has a fork for AMD's GPUs, and torchtitan is tested there.
    pub(crate) fn trains_on(self, generation: Generation) -> bool {
        !matches!(self, Product::Bridge | Product::Nemo) || generation != Generation::Cdna
    }

    /// Versions that something is known of, the newest first. Megatron Bridge's are releases of its container, and that of
    /// its package, whose recipes are the newest release's.
    const fn versions(self) -> &'static [&'static str] {
        match self {
            Product::MegatronLm => &["core_v0.19"],
            Product::Bridge => &[
                "26.08", "26.06.01", "26.06", "26.04.01", "26.04", "26.02.01", "26.02", "25.11", "25.09",
                "0.6",
            ],
            Product::Nemo => &["25.07", "25.04", "25.02", "24.12", "24.07", "24.03"],
            Product::Automodel => &["0.7"],
            Product::Torchtitan => &["0.3", "0.2", "main"],
            Product::Worker => &["0.1"],
        }
    }
}

/// A framework at a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Named {
    /// The framework.
    pub product: Product,
    /// The known version that is taken.
    pub version: &'static str,
}

impl Named {
    /// The framework of a name and version, `torchtitan 0.3` or `torchtitan v0.3.0`, and true where the version is one of which
    /// something is known; else the nearest is taken. None for a name that is no framework's.
    pub fn parse(text: &str) -> Option<(Named, bool)> {
        let wanted = text.trim().to_ascii_lowercase();
        let (name, version) = wanted.split_once(' ').unwrap_or((&wanted, ""));
        let product = Product::ALL.into_iter().find(|product| product.name() == name)?;
        let version = number(version.trim());
        // A candidate, a patch or a build of a release is of that release.
        let version = match version.split_once(['-', '+', ' ', '_']) {
            Some((release, _)) if release.starts_with(|c: char| c.is_ascii_digit()) => release,
            _ => version,
        };
        // NeMo's packages and the containers that have them (its release notes): a container says more.
        let version = match (product, version.get(..3)) {
            (Product::Nemo, Some("2.1")) => "24.12",
            (Product::Nemo, Some("2.2")) => "25.02",
            (Product::Nemo, Some("2.3")) => "25.04",
            (Product::Nemo, Some("2.4" | "2.5")) => "25.07",
            (Product::Nemo, Some("2.0")) => "24.09",
            _ => version,
        };
        let is_it = |ours: &&&str| {
            let rest = version.strip_prefix(number(ours));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        // 26.04.01 is not 26.04, where both are known.
        let exact = product.versions().iter().filter(is_it).max_by_key(|ours| ours.len());
        if let Some(version) = exact {
            return Some((Named { product, version }, true));
        }
        let newest = product.versions().first().copied().unwrap_or_default();
        // Of the same kind of number, the last that is not newer, else the first.
        let wanted = release_number(version);
        let alike = product.versions().iter().filter(|ours| {
            let ours = number(ours);
            ours.starts_with(|c: char| c.is_ascii_digit())
                && ours.starts_with("0.") == version.starts_with("0.")
        });
        let distance = |ours: &&&str| {
            let ours = release_number(number(ours));
            (ours > wanted, ours.abs_diff(wanted))
        };
        let nearest = alike.min_by_key(distance).copied().filter(|_| wanted > 0).unwrap_or(newest);
        Some((Named { product, version: nearest }, version.is_empty()))
    }

    /// The newest known version of a framework.
    pub fn newest(product: Product) -> Named {
        Named { product, version: product.versions().first().copied().unwrap_or_default() }
    }

    /// Name and version, as plan files have them.
    pub fn text(self) -> String {
        format!("{} {}", self.product.name(), self.version)
    }

    /// The version whose names of options scripts have; none for what starts without options.
    pub fn options(self) -> Option<Framework> {
        let of = Framework::ALL.into_iter().filter(|known| known.product() == self.product.name());
        let same =
            |known: &Framework| known.name().split_once(' ').is_some_and(|(_, ours)| ours == self.version);
        of.clone().find(same).or_else(|| of.clone().next())
    }

    /// The release of Megatron Bridge's container as a number: 26.04.01 is 260401.
    pub fn release(self) -> u32 {
        match self.version.starts_with("0.") {
            true => release_number("26.08"),
            false => release_number(self.version),
        }
    }

    /// Whether its distributed Adam is NeMo's `distributed_fused_adam`, which its configurations named through 24.12 (those of
    /// NVIDIA/dgxc-benchmarking, too).
    pub(crate) fn has_fused_adam(self) -> bool {
        self.product == Product::Nemo && self.release() <= release_number("24.12")
    }

    /// Every framework with each of its versions that something is known of, as plan files have them.
    pub fn known() -> Vec<String> {
        let of = |product: Product| {
            product.versions().iter().map(move |version| Named { product, version }.text())
        };
        Product::ALL.into_iter().flat_map(of).collect()
    }

    /// What plans of a runtime are usually trained by on GPUs of a generation; none for the executor, whose own profile holds.
    fn usual(runtime: Runtime, generation: Generation) -> Option<Named> {
        let facts = runtime.facts();
        if facts.is_workers_own {
            return None;
        }
        let (product, version) = match (facts.trains_megatron_core, Product::Bridge.trains_on(generation)) {
            (true, true) => (Product::Bridge, "26.08"),
            (true, false) => (Product::MegatronLm, "core_v0.19"),
            (false, _) => (Product::Torchtitan, "0.3"),
        };
        Some(Named { product, version })
    }

    /// What a plan file is usually trained by.
    pub(crate) fn usual_of(file: &PlanFile) -> Option<Named> {
        let generation = gpu(&file.cluster.gpu).map_or(Generation::None, |gpu| gpu.generation);
        Named::usual(file.runtime.unwrap_or_default(), generation)
    }

    /// The finding of a name that is no framework's, with the nearest.
    pub(super) fn unknown(text: &str) -> Finding {
        let wanted = text.to_ascii_lowercase();
        let product = wanted.split(' ').next().unwrap_or_default();
        let names = Product::ALL.map(Product::name);
        let near = nearest_names(product, names, 3);
        let newest = |name: &str| {
            let product = Product::ALL.into_iter().find(|product| product.name() == name)?;
            Some(format!("{name} {}", product.versions().first()?))
        };
        let message = format!(
            "software.framework is `{}`; it is a framework and its version, and known are {}",
            clip(text),
            names.join(", ")
        );
        Finding::error("software.framework", clip(text), message)
            .rule("plan file, version 1")
            .nearest(near.into_iter().filter_map(newest))
    }

    /// The finding of a version that nothing is known of.
    pub(super) fn taken_for(self, text: &str) -> Finding {
        let message = format!(
            "of this version of {} nothing is known; {} is taken instead, the nearest of {}",
            self.product.name(),
            self.text(),
            self.product.versions().join(", ")
        );
        Finding::warning("software.framework", clip(text), message)
            .rule("versions of frameworks")
            .nearest([self.text()])
    }

    /// The finding of a framework that does not train on the plan's GPUs.
    pub(super) fn without(self, runtime: Runtime, gpu: &Gpu) -> Finding {
        let message = format!(
            "{} trains on NVIDIA's GPUs: it needs CUDA, NCCL and Transformer Engine, as its container has them, and none of its recipes is for \
             {}, so none is taken. AMD keeps a Megatron-LM for its GPUs, and torchtitan (runtime fsdp2) is tested on them",
            self.text(),
            gpu.title
        );
        let others = Product::ALL.into_iter().filter(|product| {
            product.trains_on(gpu.generation)
                && product.runtimes().contains(&runtime)
                && *product != Product::Worker
        });
        let others =
            others.filter_map(|product| Some(format!("{} {}", product.name(), product.versions().first()?)));
        Finding::warning("software.framework", self.text(), message)
            .rule("a framework's GPUs")
            .nearest(others)
    }

    /// The finding of a framework that does not train with a runtime.
    pub(super) fn against(self, runtime: Runtime) -> Finding {
        let theirs: Vec<&str> = self.product.runtimes().iter().map(|runtime| runtime.name()).collect();
        let message = format!(
            "{} trains with runtime {}, and the plan's is {}; change one of the two",
            self.text(),
            theirs.join(" or "),
            runtime.name()
        );
        let others = Product::ALL.into_iter().filter(|product| product.runtimes().contains(&runtime));
        let others =
            others.filter_map(|product| Some(format!("{} {}", product.name(), product.versions().first()?)));
        Finding::error("software.framework", self.text(), message)
            .rule("a framework's runtimes")
            .nearest(others)
    }
}

/// The file with the usual framework of its runtime and GPUs, where it names none, or one that does not train with it; with none where
/// the runtime has no usual one.
#[must_use]
pub fn with_usual_framework(file: &PlanFile) -> PlanFile {
    let runtime = file.runtime.unwrap_or_default();
    let own = file.software.framework.as_deref().map(Named::parse);
    let stays = match own {
        None => false,
        // What is no framework's name is not for us to take away.
        Some(None) => true,
        Some(Some((named, _))) => named.product.runtimes().contains(&runtime),
    };
    let mut file = file.clone();
    if !stays {
        file.software.framework = Named::usual_of(&file).map(Named::text);
    }
    file
}

/// The file after a change of another's runtime or GPU, with the framework that goes with them: one that is the usual one before follows
/// both, for nobody chose it; another stays as long as it trains with the runtime.
#[must_use]
pub fn with_framework_after(before: &PlanFile, after: &PlanFile) -> PlanFile {
    let mut file = after.clone();
    let moved = before.runtime != after.runtime;
    if !moved && before.cluster.gpu == after.cluster.gpu {
        return file;
    }
    let own = &after.software.framework;
    let assumed = own.is_some()
        && *own == before.software.framework
        && *own == Named::usual_of(before).map(Named::text);
    if assumed {
        file.software.framework = None;
    }
    if moved || assumed { with_usual_framework(&file) } else { file }
}

/// The file for a search over runtimes: with no framework where it names one that does not train with all of them, for no recipe
/// would hold for all.
#[must_use]
pub fn for_runtimes(file: &PlanFile, runtimes: &[Runtime]) -> PlanFile {
    let named = file.software.framework.as_deref().and_then(Named::parse);
    let trains =
        |(named, _): (Named, bool)| runtimes.iter().all(|one| named.product.runtimes().contains(one));
    let mut file = file.clone();
    if !named.is_none_or(trains) {
        file.software.framework = None;
    }
    file
}

/// The release of Megatron-LM that a text names, as its minor number: `megatron-lm core_v0.12.0` is 12; none where it names none.
pub(crate) fn megatron_release(text: &str) -> Option<u32> {
    let named = text.trim().to_ascii_lowercase();
    let version = number(named.strip_prefix(Product::MegatronLm.name())?.trim()).to_owned();
    version.strip_prefix("0.")?.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// A version without what stands before its number.
fn number(version: &str) -> &str {
    version.trim_start_matches("core_").trim_start_matches('v')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_are_read_back() {
        for known in Framework::ALL {
            let (named, exact) = Named::parse(known.name()).unwrap();
            assert_eq!((named.options(), exact), (Some(known), true));
        }
        for (text, expected) in [
            ("torchtitan 0.3.0", "torchtitan 0.3"),
            ("Torchtitan v0.2.2", "torchtitan 0.2"),
            ("megatron-lm core_v0.19.0", "megatron-lm core_v0.19"),
            ("megatron-lm 0.19", "megatron-lm core_v0.19"),
            ("bridge 26.04.01", "bridge 26.04.01"),
            ("bridge 26.04", "bridge 26.04"),
            ("bridge", "bridge 26.08"),
        ] {
            let (named, exact) = Named::parse(text).unwrap();
            assert_eq!((named.text().as_str(), exact), (expected, true), "{text}");
        }
    }

    #[test]
    fn of_other_versions_the_nearest_is_taken_and_said() {
        for (text, nearest) in [
            ("torchtitan 0.1", "torchtitan 0.2"),
            ("torchtitan 0.30", "torchtitan 0.3"),
            ("torchtitan maintenance", "torchtitan 0.3"),
            ("automodel 0.3", "automodel 0.7"),
            ("bridge 26.07", "bridge 26.06.01"),
            ("bridge 25.04", "bridge 25.09"),
            ("bridge 27.02", "bridge 26.08"),
            ("bridge 0.5", "bridge 0.6"),
        ] {
            let (named, exact) = Named::parse(text).unwrap();
            assert_eq!((named.text().as_str(), exact), (nearest, false), "{text}");
            assert!(named.taken_for(text).message.contains(nearest), "{text}");
        }
    }

    #[test]
    fn candidates_builds_and_packages_are_of_their_release() {
        for (text, release) in [
            ("bridge 26.08-rc1", "bridge 26.08"),
            ("bridge 26.04.01+cu13", "bridge 26.04.01"),
            ("nemo 2.3.1", "nemo 25.04"),
            ("nemo v2.1.0", "nemo 24.12"),
            ("megatron-lm core_v0.19.0rc1", "megatron-lm core_v0.19"),
        ] {
            assert_eq!(Named::parse(text).map(|(named, _)| named.text()).as_deref(), Some(release), "{text}");
        }
    }

    #[test]
    fn what_is_no_framework_gets_the_nearest() {
        for (text, nearest) in [("torchtitam 0.3", "torchtitan 0.3"), ("brigde", "bridge 26.08")] {
            assert_eq!(Named::parse(text), None, "{text}");
            let error = Named::unknown(text);
            assert_eq!(error.nearest[0], nearest, "{error:?}");
        }
        assert_eq!(Named::parse(""), None);
    }

    #[test]
    fn a_file_gets_the_usual_framework_of_its_runtime() {
        let mut file = PlanFile::default();
        for (runtime, named, expected) in [
            (Runtime::Megatron, None, Some("bridge 26.08")),
            (Runtime::Megatron, Some("nemo 25.04"), Some("nemo 25.04")),
            (Runtime::Fsdp2, Some("bridge 26.08"), Some("torchtitan 0.3")),
            (Runtime::Native, Some("bridge 26.08"), None),
            (Runtime::Native, Some("worker 0.1"), Some("worker 0.1")),
        ] {
            (file.runtime, file.software.framework) = (Some(runtime), named.map(str::to_owned));
            assert_eq!(
                with_usual_framework(&file).software.framework.as_deref(),
                expected,
                "{runtime:?} {named:?}"
            );
        }
    }

    #[test]
    fn a_framework_that_nobody_chose_follows_runtime_and_gpu() {
        let on = |runtime: Option<Runtime>, gpu: &str, named: Option<&str>| {
            let mut file = PlanFile { runtime, ..PlanFile::default() };
            (file.cluster.gpu, file.software.framework) = (gpu.to_owned(), named.map(str::to_owned));
            file
        };
        let (fsdp2, native) = (Some(Runtime::Fsdp2), Some(Runtime::Native));
        for (before, runtime, gpu, expected) in [
            (on(None, "h100-sxm", Some("bridge 26.08")), None, "mi300x", Some("megatron-lm core_v0.19")),
            (on(None, "mi300x", Some("megatron-lm core_v0.19")), None, "b200", Some("bridge 26.08")),
            (on(None, "h100-sxm", Some("bridge 26.08")), None, "h200", Some("bridge 26.08")),
            // Somebody's choice stays, as far as it trains with the runtime.
            (on(None, "h100-sxm", Some("nemo 25.04")), None, "mi300x", Some("nemo 25.04")),
            (
                on(None, "h100-sxm", Some("megatron-lm core_v0.19")),
                None,
                "mi300x",
                Some("megatron-lm core_v0.19"),
            ),
            (on(None, "h100-sxm", Some("nemo 25.04")), fsdp2, "h100-sxm", Some("torchtitan 0.3")),
            (on(None, "h100-sxm", Some("bridge 26.08")), fsdp2, "mi300x", Some("torchtitan 0.3")),
            // None stays none on another GPU, and is one of a runtime that has one.
            (on(None, "h100-sxm", None), None, "mi300x", None),
            (on(native, "h100-sxm", None), native, "mi300x", None),
            (on(native, "mi300x", None), None, "mi300x", Some("megatron-lm core_v0.19")),
        ] {
            let mut after = before.clone();
            (after.runtime, after.cluster.gpu) = (runtime, gpu.to_owned());
            let found = with_framework_after(&before, &after).software.framework;
            assert_eq!(found.as_deref(), expected, "{before:?} {gpu}");
        }
    }

    #[test]
    fn a_framework_that_needs_cuda_is_not_for_gpus_without_it() {
        let (mut with, mut without) = (0, 0);
        for gpu in crate::cluster::gpus().iter().filter(|gpu| gpu.capacity_bytes.is_some()) {
            let mut file = PlanFile { version: 1, ..PlanFile::default() };
            (file.model.preset, file.cluster.gpu) = (Some("llama-3-8b".to_owned()), gpu.id.to_owned());
            let usual = with_usual_framework(&file).software.framework;
            for named in ["bridge 26.08", "nemo 25.04", "megatron-lm core_v0.19"] {
                file.software.framework = Some(named.to_owned());
                let resolved = crate::plan::Plan::resolve(&file);
                let found: Vec<_> =
                    resolved.findings.iter().filter(|one| one.rule == "a framework's GPUs").collect();
                if gpu.generation != Generation::Cdna || named.starts_with("megatron-lm") {
                    assert!(found.is_empty(), "{named} on {}: {found:?}", gpu.id);
                    with += 1;
                    continue;
                }
                assert_eq!(found.len(), 1, "{named} on {}", gpu.id);
                assert!(
                    found[0].message.contains(gpu.title) && found[0].message.contains("CUDA"),
                    "{found:?}"
                );
                assert_eq!(found[0].nearest, ["megatron-lm core_v0.19"]);
                assert_eq!(usual.as_deref(), Some("megatron-lm core_v0.19"));
                // Recipes for other GPUs set nothing.
                assert_eq!(crate::answer::estimate(&file).framework, None);
                without += 1;
            }
        }
        assert!(with > 20 && without >= 6, "{with}, {without}");
    }

    #[test]
    fn a_search_over_runtimes_names_no_framework_of_some() {
        let mut file = PlanFile::default();
        file.software.framework = Some("bridge 26.08".to_owned());
        assert_eq!(for_runtimes(&file, &[Runtime::Megatron, Runtime::MegatronFsdp]), file);
        let open = for_runtimes(&file, &[Runtime::Megatron, Runtime::Fsdp2]);
        assert_eq!(open, PlanFile::default());
        assert_eq!(for_runtimes(&open, &[Runtime::Native, Runtime::Fsdp2]), open);
    }

    #[test]
    fn the_usual_framework_trains_with_its_runtime() {
        for runtime in [Runtime::Megatron, Runtime::Fsdp2, Runtime::MegatronFsdp] {
            let named = Named::usual(runtime, Generation::Hopper).unwrap();
            assert!(named.product.runtimes().contains(&runtime));
            assert_eq!(Named::parse(&named.text()), Some((named, true)));
        }
    }
}
