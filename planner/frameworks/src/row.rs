//! An option of a framework and the field of a plan that it is.

use planner::plan::Plan;
use planner::settings::OptimizerKind;
use planner::units::number;

use super::effect::Effect;
use super::kind::Kind;

/// An option.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name.
    pub option: &'static str,
    /// Path of the field in a plan file; empty for one that follows from others.
    pub field: &'static str,
    /// How its values are written and read.
    pub kind: Kind,
    /// Whether it is written for a plan. What is read holds in any case.
    pub when: fn(&Plan) -> bool,
    /// The word that is written for the other plans, where what a recipe has would hold otherwise; read, it says nothing.
    pub otherwise: Option<&'static str>,
    /// The word that holds where a job leaves it out; none where the plan's own default does.
    pub usual: Option<&'static str>,
    /// The versions that it holds for; empty for all that the table is of.
    pub versions: &'static str,
    /// What of a prediction follows from it.
    pub effect: Effect,
    /// Where this was read.
    pub source: &'static str,
}

impl Row {
    /// An option that is written for every plan.
    pub const fn new(option: &'static str, field: &'static str, kind: Kind, source: &'static str) -> Row {
        let effect = Effect::OfField;
        Row {
            option,
            field,
            kind,
            when: |_| true,
            otherwise: None,
            usual: None,
            versions: "",
            effect,
            source,
        }
    }

    /// An option that is written for some plans.
    pub const fn when(self, when: fn(&Plan) -> bool) -> Row {
        Row { when, ..self }
    }

    /// An option that other plans have this word of.
    pub const fn otherwise(self, word: &'static str) -> Row {
        Row { otherwise: Some(word), ..self }
    }

    /// An option of which a job that leaves it out has this word.
    pub const fn usual(self, word: &'static str) -> Row {
        Row { usual: Some(word), ..self }
    }

    /// An option of some versions.
    pub const fn of(self, versions: &'static str) -> Row {
        Row { versions, ..self }
    }

    /// An option of which this follows.
    pub const fn has(self, effect: Effect) -> Row {
        Row { effect, ..self }
    }

    /// An option on which bytes of a GPU depend.
    pub const fn bytes(self, how: &'static str) -> Row {
        self.has(Effect::Bytes(how))
    }

    /// An option on which no byte of a GPU depends.
    pub(crate) const fn no_bytes(self, why: &'static str) -> Row {
        self.has(Effect::None(why))
    }
}

/// How the learning rate falls, in the words of Megatron's scheduler and of Automodel's, which is made of it. Where it stays
/// and falls at last, as in their other styles, it is none of a plan's.
pub(crate) const STYLES: Kind = Kind::Partly(&Kind::Words { known: STYLE_WORDS, lacks: "" });

/// The step at which a rate's fall has ended, in Megatron's scheduler and in Automodel's, which is made of it: behind the warm-up, be it that
/// the run ends before (`lr_warmup_steps < lr_decay_steps` is asserted whatever the style).
pub(crate) const FALL: Kind = Kind::Own {
    write: |plan| Ok(Some(fall(plan).to_string())),
    read: |word, said| Kind::Number.read(word, said),
};

/// The step of [`FALL`].
pub(crate) fn fall(plan: &Plan) -> u64 {
    plan.run.lr_decay_steps.max(plan.run.warmup_steps.saturating_add(1))
}

/// The least rate of these schedulers, which is asserted to be no larger than the rate where that stays, too.
pub(crate) const LEAST_RATE: Kind = Kind::Own {
    write: |plan| Ok(Some(number(plan.run.min_lr.min(plan.run.lr)))),
    read: |word, said| Kind::Real.read(word, said),
};

const STYLE_WORDS: &[(&str, &str)] = &[("constant", "constant"), ("linear", "linear"), ("cosine", "cosine")];

/// Whether a plan's learning rate can fall so.
pub(crate) fn is_style(word: &str) -> bool {
    STYLE_WORDS.iter().any(|(known, _)| known.eq_ignore_ascii_case(word))
}

/// What is said of any other style.
pub(crate) const OTHER_STYLE: &str = "the rate of a plan stays or falls linearly or as a cosine; it is taken as staying, which a script of this plan says too";

/// Whether Adam updates anything: under Muon, what is no hidden matrix.
pub(super) fn has_adam(plan: &Plan) -> bool {
    plan.training.optimizer.kind != OptimizerKind::Sgd
}

/// Whether Adam alone updates what there is.
pub(super) fn is_adam(plan: &Plan) -> bool {
    plan.training.optimizer.kind == OptimizerKind::Adam
}
