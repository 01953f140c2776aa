//! How queries and keys are rotated, and how the angles of longer sequences are scaled.
//!
//! Latent attention has options of its own for it, and scales by default: `--rope-type yarn` by a factor of 40. A model
//! that does not is told so.

use crate::Kind::{Alone, Asked, Beside, Follows, Number, Own, Read, Real};
use crate::Row;
use crate::import::Arguments;
use crate::kind::Options;
use planner::model::{Attention, MixerRef, Positions, RopeKind, RopeScaling};
use planner::plan::Plan;
use planner::units::number;

use super::hybrid::is_hybrid;
use super::{ARGUMENTS, MODEL, is_latent, on, row, says, unless};

const WEIGHTS: &str = "learned positions on the first stage; rotary ones have no weights";
const ANGLES: &str = "numbers of the positions";
const FIELD: &str = "model.rope_scaling";

/// Tokens before scaling, of latent attention's and of `--use-rope-scaling`, which have no option for them.
const LATENT_ORIGINAL: u64 = 4096;
const LLAMA_ORIGINAL: u64 = 8192;
const LLAMA_HIGH_LOW: [f64; 2] = [4.0, 1.0];
const LLAMA_FACTOR: f64 = 8.0;
const LATENT_FACTOR: f64 = 40.0;
/// `mscale` and `mscale_all_dim`, where nothing else is said.
const MSCALES: [f64; 2] = [1.0, 0.0];

/// By which of the framework's rules the angles of a plan are scaled.
enum Rule<'a> {
    None,
    /// Latent attention's YaRN, with `mscale` and `mscale_all_dim`.
    Latent(&'a RopeScaling, [f64; 2]),
    /// YaRN of other attention, with the same and the tokens before scaling.
    Yarn(&'a RopeScaling, [f64; 2], u64),
    Llama(&'a RopeScaling),
    Linear(u64),
}

/// Whether positions of a job have weights.
fn learned(said: Options) -> bool {
    said("position-embedding-type").is_none_or(|kind| kind == "learned_absolute")
        && !on(said, "no-position-embedding")
        && said("use-rotary-position-embeddings").is_none()
}

/// The rule of a plan.
///
/// # Errors
/// Why no option says what the plan does.
fn rule(plan: &Plan) -> Result<Rule<'_>, &'static str> {
    let Some(scaling) = &plan.model.rope_scaling else { return Ok(Rule::None) };
    let bounds = scaling.bounds();
    match scaling.kind {
        RopeKind::Yarn if is_latent(plan) => {
            let usual = scaling.original_positions == Some(LATENT_ORIGINAL)
                && bounds == RopeScaling::YARN_BOUNDS
                && !scaling.untruncated;
            unless(
                !usual,
                "latent attention's YaRN starts from 4,096 tokens and has bounds of 32 and 1 rotations",
            )?;
            Ok(Rule::Latent(scaling, mscales(scaling)?))
        }
        RopeKind::Yarn => match (scaling.original_positions, &plan.model.attention) {
            (_, Attention::Gqa { rotary_dim: Some(rotated), head_dim, .. }) if rotated != head_dim => {
                Err("YaRN rotates whole heads")
            }
            (Some(original), _) => Ok(Rule::Yarn(scaling, mscales(scaling)?, original)),
            (None, _) => Err("YaRN needs the tokens before scaling"),
        },
        RopeKind::Llama3 if is_latent(plan) => Err("latent attention scales its angles by YaRN alone"),
        RopeKind::Llama3 => {
            let usual = scaling.original_positions == Some(LLAMA_ORIGINAL) && bounds == LLAMA_HIGH_LOW;
            usual
                .then_some(Rule::Llama(scaling))
                .ok_or("--use-rope-scaling starts from 8,192 tokens and has bounds of 4 and 1 rotations")
        }
        RopeKind::Linear if scaling.factor.fract() == 0.0 && !is_latent(plan) => {
            Ok(Rule::Linear(scaling.factor as u64))
        }
        RopeKind::Linear => Err("angles are divided by a whole number, and not in latent attention"),
        RopeKind::Dynamic | RopeKind::Longrope | RopeKind::Proportional => {
            Err("angles are scaled by YaRN, by Llama 3's rule, or by a whole number")
        }
    }
}

/// `mscale` and `mscale_all_dim` by which Megatron-Core's YaRN multiplies cosines and sines, and the scores of latent
/// attention, as the plan does: there the first one's growth over the second one's, whether they are 0 or not.
///
/// # Errors
/// Why there are none.
fn mscales(scaling: &RopeScaling) -> Result<[f64; 2], &'static str> {
    let [_, all] = scaling.mscale.unwrap_or_default();
    let written = [scaling.mscale.unwrap_or(MSCALES), [MSCALES[0], all]].into_iter().find(|[one, all]| {
        let there = scaling.growth(*one) / scaling.growth(*all);
        (there - scaling.amplitude()).abs() < 1e-9
    });
    written.ok_or("what cosines and sines are multiplied by follows from the rule")
}

/// A plan's `mscale` and what cosines and sines are multiplied by, for Megatron-Core's two numbers.
fn read_mscales(scaling: RopeScaling, said: [f64; 2]) -> RopeScaling {
    let read = RopeScaling { mscale: Some(said).filter(|said| *said != MSCALES), ..scaling };
    let there = read.growth(said[0]) / read.growth(said[1]);
    let attention_factor = Some(there).filter(|there| (there - read.amplitude()).abs() > 1e-9);
    RopeScaling { attention_factor, ..read }
}

/// Whether some layer rotates its queries and keys.
fn is_rotated(plan: &Plan) -> bool {
    let of =
        |mixer: &MixerRef| mixer.attention().is_some_and(|own| own.scores().positions != Positions::None);
    plan.model.mixers().iter().any(of)
}

fn position_type(plan: &Plan) -> String {
    let word = match rule(plan) {
        _ if plan.model.learned_positions.is_some() => "learned_absolute",
        Ok(Rule::Yarn(..)) => "yarn",
        _ if is_hybrid(plan) && !is_rotated(plan) => "none",
        _ => "rope",
    };
    word.to_owned()
}

/// A number of YaRN's: of latent attention, or of other attention, which has the tokens before scaling too.
fn of_yarn(
    plan: &Plan,
    latent: fn(&RopeScaling, [f64; 2]) -> Option<f64>,
    other: fn(&RopeScaling, [f64; 2], u64) -> Option<f64>,
) -> Option<String> {
    let found = match rule(plan) {
        Ok(Rule::Latent(scaling, mscales)) => latent(scaling, mscales),
        Ok(Rule::Yarn(scaling, mscales, original)) => other(scaling, mscales, original),
        _ => None,
    };
    found.map(number)
}

/// The factor. Scores of latent attention are scaled by it too, whatever its angles are.
fn factor(plan: &Plan) -> Option<String> {
    let scaled = of_yarn(plan, |scaling, _| Some(scaling.factor), |scaling, _, _| Some(scaling.factor));
    scaled.or_else(|| is_latent(plan).then(|| "1".to_owned()))
}

fn original(plan: &Plan) -> Option<String> {
    of_yarn(plan, |_, _| None, |_, _, original| Some(original as f64))
}

fn fast(plan: &Plan) -> Option<String> {
    of_yarn(plan, |_, _| None, |scaling, _, _| Some(scaling.bounds()[0]))
}

fn slow(plan: &Plan) -> Option<String> {
    of_yarn(plan, |_, _| None, |scaling, _, _| Some(scaling.bounds()[1]))
}

fn mscale(plan: &Plan) -> Option<String> {
    of_yarn(plan, |_, [one, _]| Some(one), |_, [one, _], _| Some(one))
}

fn mscale_all(plan: &Plan) -> Option<String> {
    of_yarn(plan, |_, [_, all]| Some(all), |_, [_, all], _| Some(all))
}

fn is_untruncated(plan: &Plan) -> bool {
    matches!(rule(plan), Ok(Rule::Yarn(scaling, ..)) if scaling.untruncated)
}

fn llama(plan: &Plan) -> Option<&RopeScaling> {
    match rule(plan) {
        Ok(Rule::Llama(scaling)) => Some(scaling),
        _ => None,
    }
}

fn divided(plan: &Plan) -> Option<String> {
    match rule(plan) {
        Ok(Rule::Linear(factor)) => Some(factor.to_string()),
        _ => None,
    }
}

fn rope_type(plan: &Plan) -> Option<String> {
    let scaled = matches!(rule(plan), Ok(Rule::Latent(..)));
    is_latent(plan).then(|| if scaled { "yarn" } else { "rope" }.to_owned())
}

/// What a job's options say of scaled angles.
///
/// # Errors
/// A word that is no number, as a sentence.
pub(crate) fn read_scaling(arguments: &Arguments) -> Result<Option<RopeScaling>, String> {
    let real = |name: &str, usual: f64| Ok::<f64, String>(arguments.real(name)?.unwrap_or(usual));
    let is = |name: &str, word: &str| arguments.word(name).as_deref() == Some(word);
    let factor = arguments.real("rotary-scaling-factor")?;
    let mscales = [real("mscale", MSCALES[0])?, real("mscale-all-dim", MSCALES[1])?];
    if arguments.has("multi-latent-attention") {
        let factor = factor.unwrap_or(LATENT_FACTOR);
        let scaled = !is("rope-type", "rope") && factor > 1.0;
        let scaling = RopeScaling {
            kind: RopeKind::Yarn,
            factor,
            original_positions: Some(LATENT_ORIGINAL),
            fast_slow: Some(RopeScaling::YARN_BOUNDS),
            ..RopeScaling::default()
        };
        return Ok(scaled.then(|| read_mscales(scaling, mscales)));
    }
    if is("position-embedding-type", "yarn") {
        let [fast, slow] = RopeScaling::YARN_BOUNDS;
        let scaling = RopeScaling {
            kind: RopeKind::Yarn,
            factor: factor.unwrap_or(1.0),
            original_positions: arguments.number("yarn-original-max-position-embeddings")?,
            fast_slow: Some([real("yarn-beta-fast", fast)?, real("yarn-beta-slow", slow)?]),
            untruncated: arguments.has("no-yarn-correction-range-round-to-int"),
            ..RopeScaling::default()
        };
        return Ok(Some(read_mscales(scaling, mscales)));
    }
    if arguments.has("use-rope-scaling") {
        return Ok(Some(RopeScaling {
            kind: RopeKind::Llama3,
            factor: real("rope-scaling-factor", LLAMA_FACTOR)?,
            original_positions: Some(LLAMA_ORIGINAL),
            fast_slow: Some(LLAMA_HIGH_LOW),
            ..RopeScaling::default()
        }));
    }
    let divided = arguments.real("rotary-seq-len-interpolation-factor")?.filter(|factor| *factor > 1.0);
    Ok(divided.map(|factor| RopeScaling { kind: RopeKind::Linear, factor, ..RopeScaling::default() }))
}

pub(super) const POSITIONS: &[Row] = &[
    row("position-embedding-type", "", Follows(|plan| Some(position_type(plan))), ARGUMENTS).bytes(WEIGHTS),
    says(
        "model.mtp_layers",
        |plan| {
            let fits = matches!(position_type(plan).as_str(), "rope" | "none");
            unless(
                plan.model.mtp_layers > 0 && !fits,
                "Megatron-LM does not start with prediction modules on learned positions or YaRN's (core_v0.19)",
            )
        },
        ARGUMENTS,
    ),
    row("no-position-embedding", "", Asked(false), ARGUMENTS).bytes(WEIGHTS),
    row("use-rotary-position-embeddings", "", Asked(false), ARGUMENTS).bytes(WEIGHTS),
    row(
        "max-position-embeddings",
        "",
        Follows(|plan| Some(plan.model.learned_positions.unwrap_or(plan.training.seq_len).to_string())),
        ARGUMENTS,
    )
    .bytes(WEIGHTS),
    row("max-position-embeddings", "model.learned_positions", Read(&Beside(learned, &Number)), ARGUMENTS),
    row(
        "rotary-base",
        "model.rope_theta",
        Own {
            write: |plan| Ok(Some(number(libm::round(plan.model.rope_theta)))),
            read: |word, said| Real.read(word, said),
        },
        ARGUMENTS,
    )
    .no_bytes("a number of the positions"),
    says(
        "model.rope_theta",
        |plan| {
            unless(
                plan.model.rope_theta.fract() != 0.0,
                "the base of rotary positions is a whole number, so it is rounded",
            )
        },
        ARGUMENTS,
    ),
    says(FIELD, |plan| rule(plan).map(|_| ()), MODEL),
    of_scaling("rope-type", rope_type),
    // The fused kernel of latent attention is YaRN's alone, and is on unless it is switched off.
    row(
        "no-rope-fusion",
        FIELD,
        Alone { write: |plan| rope_type(plan).as_deref() == Some("rope"), read: |_, _| None },
        MODEL,
    )
    .no_bytes(ANGLES),
    of_scaling("rotary-scaling-factor", factor),
    of_scaling("yarn-original-max-position-embeddings", original),
    of_scaling("yarn-beta-fast", fast),
    of_scaling("yarn-beta-slow", slow),
    of_scaling("mscale", mscale),
    of_scaling("mscale-all-dim", mscale_all),
    row(
        "no-yarn-correction-range-round-to-int",
        FIELD,
        Alone { write: is_untruncated, read: |_, _| None },
        MODEL,
    )
    .no_bytes(ANGLES),
    row(
        "use-rope-scaling",
        FIELD,
        Alone { write: |plan| llama(plan).is_some(), read: |_, _| None },
        ARGUMENTS,
    )
    .no_bytes(ANGLES),
    of_scaling("rope-scaling-factor", |plan| llama(plan).map(|scaling| number(scaling.factor))),
    of_scaling("rotary-seq-len-interpolation-factor", divided),
];

/// An option that follows from how angles are scaled.
const fn of_scaling(option: &'static str, write: fn(&Plan) -> Option<String>) -> Row {
    row(option, FIELD, Follows(write), ARGUMENTS).no_bytes(ANGLES)
}
