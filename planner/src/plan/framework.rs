//! The framework that a plan names in `software.framework`, with its version: which names its options have.

use super::clip;
use crate::finding::{Finding, nearest_names};

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

    /// The framework of a name and version: `torchtitan 0.3`, and `torchtitan v0.3.0` for the same; none when its names
    /// are not known.
    pub fn parse(text: &str) -> Option<Framework> {
        let wanted = text.to_ascii_lowercase();
        let (product, version) = wanted.split_once(' ')?;
        Framework::ALL.into_iter().filter(|known| known.product() == product).find(|known| {
            let (_, ours) = known.name().split_once(' ').unwrap_or_default();
            let rest = number(version.trim()).strip_prefix(number(ours));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// The finding of a name that is none, with the nearest.
    pub(super) fn unknown(text: &str) -> Finding {
        let wanted = text.to_ascii_lowercase();
        let product = wanted.split(' ').next().unwrap_or_default();
        let names = Framework::ALL.map(Framework::name);
        let mut near = nearest_names(&wanted, names, names.len());
        // Other versions of the framework are nearer than other frameworks, whatever their letters.
        near.sort_by_key(|name| !name.starts_with(product));
        near.truncate(3);
        let text = clip(text);
        let message =
            format!("software.framework is `{text}`; names of options are known of {}", names.join(", "));
        Finding::error("software.framework", text, message).rule("plan file, version 1").nearest(near)
    }
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
            assert_eq!(Framework::parse(known.name()), Some(known));
        }
        for (text, expected) in [
            ("torchtitan 0.3.0", Framework::Torchtitan03),
            ("Torchtitan v0.2.2", Framework::Torchtitan02),
            ("megatron-lm core_v0.19.0", Framework::MegatronLm),
            ("megatron-lm 0.19", Framework::MegatronLm),
        ] {
            assert_eq!(Framework::parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_gets_the_nearest() {
        for (text, nearest) in [
            ("torchtitan 0.1", "torchtitan 0."),
            ("torchtitan 0.30", "torchtitan 0.3"),
            ("torchtitan", "torchtitan 0."),
            ("torchtitan maintenance", "torchtitan main"),
            ("torchtitam 0.3", "torchtitan 0.3"),
            ("automodel 0.3", "automodel 0.7"),
            ("", ""),
        ] {
            assert_eq!(Framework::parse(text), None, "{text}");
            let error = Framework::unknown(text);
            assert_eq!(error.field, "software.framework");
            assert!(error.nearest[0].as_str().is_some_and(|near| near.starts_with(nearest)), "{error:?}");
        }
    }
}
