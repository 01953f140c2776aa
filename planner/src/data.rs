//! Data files of the program: in it, or given to it. The page's searchers, which are programs of their own, are given what stands
//! in the page, so that a browser is not sent it twice.

/// A data file that a search reads.
#[derive(Debug, Clone, Copy)]
pub(crate) enum File {
    /// Models by name.
    Catalogue,
    /// How families of Hugging Face are read.
    Families,
    /// Classes of their models.
    Classes,
    /// Tensor-parallel plans of transformers.
    TpPlans,
    /// GPUs.
    Gpus,
    /// Constants of the time model.
    Constants,
    /// How far it was off.
    Ranges,
    /// What releases of Megatron Bridge set.
    Releases,
    /// What recipe files of NeMo Automodel set.
    Automodel,
    /// What NeMo's performance recipes set.
    Nemo,
}

/// The texts, in the order of `File`.
#[cfg(feature = "data")]
const TEXTS: [&str; 10] = [
    include_str!("model/catalogue.json"),
    include_str!("model/hf/families.txt"),
    include_str!("model/hf/classes.txt"),
    include_str!("shard/data/transformers_tp_plans.json"),
    include_str!("cluster/gpus.json"),
    include_str!("time/constants.json"),
    include_str!("time/ranges.json"),
    include_str!("recipes/bridge.txt"),
    include_str!("recipes/automodel.txt"),
    include_str!("recipes/nemo.txt"),
];

#[cfg(not(feature = "data"))]
static TEXTS: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();

/// The text of a file. Empty in a program that has none and was not given them yet.
pub(crate) fn text(file: File) -> &'static str {
    #[cfg(feature = "data")]
    let text = TEXTS.get(file as usize).copied();
    #[cfg(not(feature = "data"))]
    let text = TEXTS.get().and_then(|texts| texts.get(file as usize)).map(String::as_str);
    text.unwrap_or_default()
}

/// All texts, for a program without.
#[cfg(feature = "data")]
pub fn texts() -> Vec<String> {
    TEXTS.map(str::to_owned).to_vec()
}

/// Takes what `texts` gave, before anything else is asked. A program that has its own keeps them.
pub fn give(texts: Vec<String>) {
    #[cfg(feature = "data")]
    drop(texts);
    #[cfg(not(feature = "data"))]
    let _ = TEXTS.set(texts);
}

#[cfg(all(test, feature = "data"))]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_itself() {
        let begin = |file: File| text(file).trim_start();
        assert!(begin(File::Catalogue).contains("\"hf_config\""));
        assert!(begin(File::TpPlans).contains("\"colwise\""));
        assert!(begin(File::Gpus).contains("\"h100-sxm\""));
        assert!(begin(File::Constants).contains("\"profiles\""));
        assert!(begin(File::Ranges).contains("\"other_gpu\""));
        for file in [File::Families, File::Classes, File::Releases, File::Automodel, File::Nemo] {
            assert!(!begin(file).starts_with(['{', '[']), "{file:?}");
        }
        assert_eq!(texts().len(), File::Nemo as usize + 1);
    }
}
