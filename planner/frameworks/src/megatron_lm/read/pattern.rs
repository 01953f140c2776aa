//! Kinds of layers as lists, frequencies and letters.

use planner::model::{LayerKind, Mlp};

/// Bytes after which a hybrid pattern is no pattern.
const LONGEST_PATTERN: usize = 4096;

/// `--moe-layer-freq`: a number n makes every n-th layer from the first a mixture; a list such as `([0]*3+[1]*12)` says
/// it for each.
///
/// # Errors
/// When it is neither.
pub(super) fn frequency_kinds(text: Option<&str>, layers: u64) -> Result<Vec<LayerKind>, String> {
    const NAME: &str = "moe-layer-freq";
    let kind = |experts: bool| if experts { LayerKind::MOE } else { LayerKind::DENSE };
    let layers = layers.min(planner::model::MAX_LAYERS);
    let Some(text) = text else { return Ok(vec![LayerKind::MOE; layers as usize]) };
    match text.parse::<u64>() {
        Ok(0) => Err(wrong_list(NAME, text)),
        Ok(every) => Ok((0..layers).map(|layer| kind(layer.is_multiple_of(every))).collect()),
        Err(_) => Ok(listed(NAME, text, layers as usize)?.into_iter().map(kind).collect()),
    }
}

pub(super) fn wrong_list(name: &str, text: &str) -> String {
    format!("--{name} is `{text}`, neither a number nor a list with an entry for each layer")
}

/// A list of zeros and ones with an entry for each layer, as sums of products of lists: `[0]*3+[1]*12`.
pub(super) fn listed(name: &str, text: &str, layers: usize) -> Result<Vec<bool>, String> {
    let wrong = || wrong_list(name, text);
    let repeated = |text: &str| match text.rsplit_once('*') {
        Some((list, times)) if !times.contains([']', ')']) => {
            times.trim().parse::<usize>().map(|times| (list.trim().to_owned(), times)).map_err(|_| wrong())
        }
        _ => Ok((text.trim().to_owned(), 1)),
    };
    // The whole may be repeated once more.
    let (all, times) = repeated(text)?;
    let mut entries = Vec::new();
    for term in all.trim_matches(['(', ')']).split('+') {
        let (list, times) = repeated(term)?;
        let numbers = list.trim_matches(['[', ']']).split(',').map(|entry| entry.trim().parse::<u64>());
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().map_err(|_| wrong())?;
        for _ in 0..times.min(layers) {
            entries.extend(numbers.iter().map(|number| *number != 0));
            if entries.len() > layers {
                return Err(wrong());
            }
        }
    }
    let found: Vec<bool> = entries.iter().copied().cycle().take(entries.len() * times.min(layers)).collect();
    if found.len() == layers { Ok(found) } else { Err(wrong()) }
}

/// `M-M*E|ME/*E`: a letter for each layer (M Mamba, - MLP, * attention, E experts), stages apart by `|`, then the layers
/// of each multi-token-prediction module after `/`.
pub(super) struct HybridPattern {
    /// Kinds of the layers.
    pub layers: Vec<LayerKind>,
    /// Kinds of the layers of a prediction module.
    pub mtp: Vec<LayerKind>,
    /// Layers of each stage, where there are several.
    pub stages: Option<Vec<u64>>,
}

impl HybridPattern {
    /// Reads the letters.
    ///
    /// # Errors
    /// A letter that is none, or too many.
    pub(super) fn read(text: &str) -> Result<HybridPattern, String> {
        if text.len() > LONGEST_PATTERN {
            return Err(format!("--hybrid-layer-pattern is longer than {LONGEST_PATTERN}"));
        }
        let kind = |letter: char| match letter {
            'M' => Ok(LayerKind::new(Some(1), Mlp::None)),
            '*' => Ok(LayerKind::new(Some(0), Mlp::None)),
            '-' => Ok(LayerKind::new(None, Mlp::Dense)),
            'E' => Ok(LayerKind::new(None, Mlp::Moe)),
            other => Err(format!("--hybrid-layer-pattern has `{other}`; letters are M, *, -, E, | and /")),
        };
        let mut parts = text.split('/');
        let main = parts.next().unwrap_or_default();
        let stages: Vec<Vec<LayerKind>> =
            main.split('|').map(|stage| stage.chars().map(kind).collect()).collect::<Result<_, _>>()?;
        let mtp = parts.next().unwrap_or_default().chars().map(kind).collect::<Result<_, _>>()?;
        let counts = stages.iter().map(|stage| stage.len() as u64).collect::<Vec<u64>>();
        Ok(HybridPattern {
            layers: stages.into_iter().flatten().collect(),
            mtp,
            stages: (counts.len() > 1).then_some(counts),
        })
    }
}

/// Stages of so many layers each, as Megatron writes a layout.
pub(super) fn layout_of(stages: &[u64], modules: u64) -> String {
    let mut text = String::from("E");
    for (number, layers) in stages.iter().enumerate() {
        if number > 0 {
            text.push('|');
        }
        text.push_str(&format!("t*{layers}"));
    }
    for _ in 0..modules {
        text.push('m');
    }
    text.push('L');
    text
}
