//! Fixing and bounding axes by name, as command lines and links write them.

use super::request::{Axes, AxisValues, Bounds, RecomputeWords};
use super::sharding::Sharding;
use crate::cluster::gpus;
use crate::finding::{clip, nearest_names};
use crate::json::read_value;
use crate::settings::RECOMPUTE_MODULES;
use crate::wire::{AXES, Kind, OpenAxis, Setting};

/// Axes that are numbers.
const NUMBERS: [&str; 9] =
    ["tp", "cp", "pp", "vpp", "ep", "etp", "dp_replicate", "micro_batch_size", "nodes"];
/// Axes that are names or switches.
const NAMES: [&str; 9] = [
    "schedule",
    "recompute",
    "sp",
    "distributed_optimizer",
    "fsdp_strategy",
    "precision",
    "runtime",
    "gpu",
    "uneven_stages",
];

/// Values that an axis may be held at, as [`Axes::fix`] reads them; of numbers the usual ones. Empty for no axis.
pub fn choices(name: &str) -> Vec<String> {
    let words = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect::<Vec<String>>();
    let doubled = |count: u32| (0..count).map(|power| (1u64 << power).to_string()).collect::<Vec<String>>();
    match name {
        "nodes" => doubled(11),
        "pp" | "micro_batch_size" => doubled(6),
        "tp" | "cp" | "ep" | "etp" | "dp_replicate" => doubled(7),
        "vpp" => (1..=8u64).map(|count| count.to_string()).collect(),
        "recompute" => words([&["none", "full"], RECOMPUTE_MODULES].concat()),
        "uneven_stages" => words(vec!["true", "false"]),
        "fsdp_strategy" => words(Sharding::ALL.iter().map(|one| one.name()).collect()),
        "gpu" => words(gpus().iter().map(|gpu| gpu.id).collect()),
        // Others are what the field takes.
        _ => match setting_of(name).map(|setting| setting.kind) {
            Some(Kind::Word(known)) => words(known.to_vec()),
            Some(Kind::Switch) => words(vec!["true", "false"]),
            _ => Vec::new(),
        },
    }
}

/// The setting that an axis is of.
pub fn setting_of(name: &str) -> Option<&'static Setting> {
    let axis = AXES.iter().find(|axis| axis.name == name)?;
    Setting::at_path(axis.path)
}

impl Axes {
    /// Fixes an axis: `tp` to `8`, or to one of several as in `4|8`. `mbs` stands for `micro_batch_size`.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn fix(&mut self, name: &str, text: &str) -> Result<(), String> {
        let name = by_path(name);
        let texts: Vec<&str> = text.split('|').map(str::trim).collect();
        if let Some(axis) = self.number(name) {
            let read = |text: &&str| {
                text.parse::<u64>()
                    .map_err(|_| format!("{name} must be a whole number, and it is `{}`", clip(text)))
            };
            let values = texts.iter().map(read).collect::<Result<Vec<u64>, String>>()?;
            *axis = Some(match values[..] {
                [one] => AxisValues::Fixed(one),
                _ => AxisValues::Values(values),
            });
            return Ok(());
        }
        match name {
            "schedule" => self.schedule = Some(named(name, &texts)?),
            "fsdp_strategy" => self.fsdp_strategy = Some(named(name, &texts)?),
            "precision" => self.precision = Some(named(name, &texts)?),
            "runtime" => self.runtime = Some(named(name, &texts)?),
            "recompute" => {
                self.recompute =
                    Some(texts.iter().map(|text| recompute(text)).collect::<Result<_, String>>()?);
            }
            "gpu" => self.gpu = Some(texts.iter().map(|text| (*text).to_owned()).collect()),
            "sp" => self.sp = Some(flags(name, &texts)?),
            "distributed_optimizer" => self.distributed_optimizer = Some(flags(name, &texts)?),
            "uneven_stages" => self.uneven_stages = flags(name, &texts)?.first().copied(),
            path if path.contains('.') => {
                // What is no JSON is a name.
                let value = |text: &&str| serde_json::from_str(text).unwrap_or_else(|_| (*text).into());
                self.settings.insert(path.to_owned(), texts.iter().map(value).collect());
            }
            other => return Err(unknown(other)),
        }
        Ok(())
    }

    /// Bounds an axis: `pp` to `1..16`, both included; either end may be left out.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn bound(&mut self, name: &str, text: &str) -> Result<(), String> {
        let name = by_path(name);
        let wrong = || format!("bounds of {name} are of the form 1..16, and they are `{}`", clip(text));
        let Some(axis) = self.number(name) else {
            return Err(if NAMES.contains(&name) {
                format!("{name} has no bounds; name its values, such as {name}=a|b")
            } else {
                unknown(name)
            });
        };
        let (least, most) = text.split_once("..").ok_or_else(wrong)?;
        let read = |text: &str, absent: u64| match text.trim() {
            "" => Ok(absent),
            text => text.parse::<u64>().map_err(|_| wrong()),
        };
        let bounds = Bounds { min: read(least, 0)?, max: read(most, u64::MAX)? };
        if bounds.min > bounds.max {
            return Err(format!("bounds of {name} are upside down: {} is above {}", bounds.min, bounds.max));
        }
        *axis = Some(AxisValues::Bounds(bounds));
        Ok(())
    }

    fn number(&mut self, name: &str) -> Option<&mut Option<AxisValues>> {
        Some(match name {
            "tp" => &mut self.tp,
            "cp" => &mut self.cp,
            "pp" => &mut self.pp,
            "vpp" => &mut self.vpp,
            "ep" => &mut self.ep,
            "etp" => &mut self.etp,
            "dp_replicate" => &mut self.dp_replicate,
            "mbs" | "micro_batch_size" => &mut self.micro_batch_size,
            "nodes" => &mut self.nodes,
            _ => return None,
        })
    }
}

/// The name of an axis that is written as the path of its field, and the path of one that is a setting by its path; other names
/// as they are. How layers are split is more than a setting.
fn by_path(name: &str) -> &str {
    let is_setting = |axis: &&OpenAxis| {
        axis.name == name && name != "stages" && !NUMBERS.contains(&name) && !NAMES.contains(&name)
    };
    if let Some(axis) = AXES.iter().find(is_setting) {
        return axis.path;
    }
    let axis = AXES.iter().find(|axis| axis.path == name).map(|axis| axis.name);
    let of_recompute =
        matches!(name, "training.recompute" | "training.recompute.modules").then_some("recompute");
    axis.or(of_recompute).filter(|axis| NUMBERS.contains(axis) || NAMES.contains(axis)).unwrap_or(name)
}

/// What is recomputed, by its words.
fn recompute(text: &str) -> Result<RecomputeWords, String> {
    let words = RecomputeWords(text.to_owned());
    match words.modules().iter().find(|module| !RECOMPUTE_MODULES.contains(&module.as_str())) {
        None => Ok(words),
        Some(wrong) => Err(format!(
            "`{}` can't be recomputed; there are none, full and the modules {}",
            clip(wrong),
            RECOMPUTE_MODULES.join(", ")
        )),
    }
}

fn unknown(name: &str) -> String {
    let all = NUMBERS
        .into_iter()
        .chain(NAMES)
        .chain(AXES.iter().map(|axis| axis.name).filter(|name| *name != "stages"));
    let near = nearest_names(name, all, 1);
    format!(
        "`{}` is no axis of a search; did you mean `{}`?",
        clip(name),
        near.first().copied().unwrap_or("tp")
    )
}

fn named<T: serde::de::DeserializeOwned>(name: &str, texts: &[&str]) -> Result<Vec<T>, String> {
    let read = |text: &&str| {
        read_value(serde_json::Value::String((*text).to_owned()))
            .map_err(|error| format!("{name} can't be `{}`: {error}", clip(text)))
    };
    texts.iter().map(read).collect()
}

fn flags(name: &str, texts: &[&str]) -> Result<Vec<bool>, String> {
    let read = |text: &&str| match *text {
        "true" | "on" | "yes" => Ok(true),
        "false" | "off" | "no" => Ok(false),
        other => Err(format!("{name} must be true or false, and it is `{}`", clip(other))),
    };
    texts.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_axis_has_choices_that_it_takes() {
        // Text and shares are typed.
        let typed = ["stages", "order", "optimizer_offload"];
        let open = AXES.iter().map(|axis| axis.name).filter(|name| !typed.contains(name));
        assert!(
            NUMBERS.iter().chain(&NAMES).all(|name| *name == "uneven_stages" || setting_of(name).is_some())
        );
        for name in open.chain(["uneven_stages"]) {
            let all = choices(name);
            assert!(all.len() > 1, "{name}");
            for text in all.iter().cloned().chain([all.join("|")]) {
                assert_eq!(Axes::default().fix(name, &text), Ok(()), "{name} {text}");
            }
        }
        assert!(choices("nothing").is_empty());
    }

    #[test]
    fn a_path_is_its_axis() {
        let fixed = |name: &str, text: &str| {
            let mut axes = Axes::default();
            axes.fix(name, text).map(|()| axes)
        };
        for (path, name, text) in [
            ("layout.tp", "tp", "4"),
            ("cluster.nodes", "nodes", "2|4"),
            ("cluster.gpu", "gpu", "h200"),
            ("training.recompute.granularity", "recompute", "full"),
            ("training.recompute.modules", "recompute", "core_attn"),
            ("training.recompute", "recompute", "mlp"),
        ] {
            assert_eq!(fixed(path, text), fixed(name, text), "{path}");
        }
        // What is no axis of its own is a setting by its path, or by the name that opens it.
        for (name, text) in [("training.moe.dispatcher", "flex"), ("dispatcher", "flex|alltoall")] {
            let other = fixed(name, text).unwrap();
            assert_eq!(other.settings.keys().collect::<Vec<_>>(), ["training.moe.dispatcher"]);
        }
        assert_eq!(fixed("tp_overlap", "true").unwrap().settings["training.overlap.tp"], [true]);
        assert!(fixed("stages", "even").is_err_and(|said| said.contains("no axis")));
        for (text, wrong) in [("foo", "`foo`"), ("none|mlp+core", "`core`")] {
            assert!(
                fixed("recompute", text)
                    .is_err_and(|said| said.contains(wrong) && said.contains("core_attn, "))
            );
        }
        assert!(fixed("dispatch", "flex").is_err_and(|said| said.contains("`dispatcher`")));
    }
}
