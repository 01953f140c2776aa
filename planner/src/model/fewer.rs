//! A model with fewer layers than it has, or more: to try a plan on a few GPUs, or to compare sizes.

use super::Architecture;

/// Gives `model` so many layers, at most `most`: the first of its own, and after the last of a pattern its first again.
///
/// # Errors
/// Why it can't have so many, in a sentence.
pub(crate) fn with_layers(model: &mut Architecture, layers: u64, most: u64) -> Result<(), String> {
    let own = model.num_layers;
    if layers == 0 || layers > most {
        return Err(format!("model.num_layers is {layers}; it must be between 1 and {most}"));
    }
    let period: u64 = model.pattern.iter().map(|run| run.count).sum();
    // A list of all layers one by one says nothing of one more; a pattern that comes again does.
    if layers > own && period > 0 && period.saturating_mul(2) > own {
        return Err(format!(
            "model.num_layers is {layers}, and this model's {own} layers are listed one by one, so it can have fewer, not more; write model.architecture with a pattern for another model"
        ));
    }
    model.num_layers = layers;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::presets;
    use super::*;

    fn preset(id: &str) -> Architecture {
        let preset = presets().iter().find(|preset| preset.id == id).unwrap();
        preset.model().unwrap().0.clone()
    }

    #[test]
    fn the_first_layers_stay() {
        let whole = preset("deepseek-v3");
        let mut few = whole.clone();
        with_layers(&mut few, 5, 4096).unwrap();
        let kinds = |model: &Architecture| (0..5).map(|layer| model.layer_kind(layer)).collect::<Vec<_>>();
        assert_eq!((kinds(&few), few.num_layers), (kinds(&whole), 5));
    }

    #[test]
    fn more_layers_only_where_it_is_known_which() {
        assert!(with_layers(&mut preset("llama-3-8b"), 48, 4096).is_ok());
        assert!(with_layers(&mut preset("qwen3-next-80b-a3b"), 96, 4096).is_ok());
        let refused = with_layers(&mut preset("deepseek-v3"), 64, 4096).unwrap_err();
        assert!(refused.contains("listed one by one"), "{refused}");
        assert!(with_layers(&mut preset("llama-3-8b"), 0, 4096).is_err());
    }
}
