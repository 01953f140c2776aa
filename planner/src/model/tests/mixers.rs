//! What mixers do beside their matrices goes with their parameters.

use crate::model::params::layer_parameters;
use crate::model::{Attention, LayerKind, MixerRef, Parameter, presets};

#[test]
fn cores_and_scans_are_as_wide_as_their_parameters() {
    let (mut cores, mut convolutions) = (0, 0);
    for preset in presets() {
        let (model, _) = preset.model().unwrap();
        for (kind, _) in model.layer_kinds() {
            let LayerKind { mixer: number, .. } = kind;
            let Some(mixer) = model.mixer(kind) else { continue };
            let parameters = layer_parameters(model, kind);
            let elements = |part: &str| {
                let name = format!("layers.{{layer}}.{part}.weight");
                parameters.iter().find(|parameter| parameter.name == name).map(Parameter::elements)
            };
            let (id, hidden) = (&preset.id, model.hidden_size);
            if let Some(attention @ (Attention::Gqa { .. } | Attention::Mla { .. })) = mixer.attention() {
                let core = attention.core();
                let found = Some(hidden * core.heads * core.value_dim);
                assert_eq!(elements("attention.proj"), found, "{id}: mixer {number:?}");
                cores += 1;
            }
            if matches!(mixer, MixerRef::Listed(_)) {
                continue;
            }
            if let Some(scan) = mixer.scan() {
                let part = if mixer.attention().is_some() { "mamba" } else { "attention" };
                let found = [scan.convolved * scan.conv_kernel, hidden * scan.channels].map(Some);
                let expected = ["conv", "proj"].map(|what| elements(&format!("{part}.{what}")));
                assert_eq!(expected, found, "{id}: mixer {number:?}");
                convolutions += 1;
            }
        }
    }
    assert!(cores > 50 && convolutions > 3, "{cores} cores and {convolutions} recurrences");
}
