//! Norms of queries and keys: of single heads, or over all of them, which tensor parallelism cuts (MiniMax-M2, OLMo 2).

use planner::model::{Architecture, QkNorm};
use tch::Tensor;

use super::context::Heads;
use super::functions::exact;
use super::names::Names;
use crate::tape::{Flow, Gradients, OfWeights, Tape, TensorParallel};

/// Norms of an attention's queries and keys.
pub struct HeadNorms {
    kind: QkNorm,
    /// Numbers of the parameters, the queries' first.
    parameters: Vec<usize>,
    epsilon: f64,
    /// Whether they stand behind the rotation.
    pub behind_rotation: bool,
}

impl HeadNorms {
    /// Finds the norms of the attention with this name.
    ///
    /// # Errors
    /// When one is missing.
    pub fn find(
        architecture: &Architecture,
        kind: QkNorm,
        behind_rotation: bool,
        names: &Names<'_>,
        name: &str,
    ) -> anyhow::Result<HeadNorms> {
        let of_one: &[&str] = match kind {
            QkNorm::None | QkNorm::Plain => &[],
            QkNorm::PerHead | QkNorm::Full | QkNorm::EachHead => &["weight"],
            QkNorm::PerHeadLayer => &["weight", "bias"],
        };
        let mut parameters = Vec::new();
        for norm in ["q_norm", "k_norm"] {
            for part in of_one {
                parameters.push(names.take(&format!("{name}.{norm}.{part}"))?);
            }
        }
        Ok(HeadNorms { kind, parameters, epsilon: architecture.norm_eps, behind_rotation })
    }

    /// Whether one norm is over all heads.
    pub fn is_over_all_heads(&self) -> bool {
        self.kind == QkNorm::Full
    }

    /// Numbers of the parameters.
    pub fn parameters(&self) -> &[usize] {
        &self.parameters
    }

    /// Parameters of the queries' norm, and of the keys'.
    pub fn weights<'w>(&self, weights: &'w [Tensor]) -> [&'w [Tensor]; 2] {
        let (queries, keys) = weights.split_at(weights.len() / 2);
        [queries, keys]
    }

    /// Heads, `[s, b, heads, d]`, each normed by itself.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn normed(&self, heads: Tensor, weights: &[Tensor]) -> anyhow::Result<Tensor> {
        let width = [heads.size().last().copied().unwrap_or(1)];
        let (weight, bias) = (weights.first(), weights.get(1));
        Ok(match self.kind {
            QkNorm::None | QkNorm::Full => heads,
            QkNorm::PerHead | QkNorm::Plain => heads.f_rms_norm(width, weight, self.epsilon)?,
            QkNorm::PerHeadLayer => heads.f_layer_norm(width, weight, bias, self.epsilon, false)?,
            QkNorm::EachHead => {
                let normed =
                    heads.f_layer_norm(width, None::<&Tensor>, None::<&Tensor>, self.epsilon, false)?;
                match weight {
                    Some(weight) => normed.f_mul(weight)?,
                    None => normed,
                }
            }
        })
    }

    /// Packed heads with queries and keys normed, each over the heads of all tensor-parallel ranks.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn over_all_heads(&self, tape: &mut Tape<'_>, packed: &Flow, heads: Heads) -> anyhow::Result<Flow> {
        full_norm(tape, packed, &self.parameters, heads, self.epsilon)
    }
}

/// What is normed: first element and elements in a token, and a weight for each.
struct Part {
    start: i64,
    width: i64,
    weight: Tensor,
}

/// Sum over a token's elements on all ranks, `[s, b, 1]`.
fn over_ranks(group: TensorParallel<'_>, values: &Tensor) -> anyhow::Result<Tensor> {
    let sum = values.f_sum_dim_intlist([-1_i64].as_slice(), true, values.kind())?;
    if group.size() == 1 { Ok(sum) } else { group.sum(&sum) }
}

impl Part {
    fn of(&self, packed: &Tensor) -> anyhow::Result<Tensor> {
        Ok(packed.f_narrow(-1, self.start, self.width)?)
    }

    /// One over the root of the mean square, `[s, b, 1]`.
    fn rest(&self, group: TensorParallel<'_>, values: &Tensor, epsilon: f64) -> anyhow::Result<Tensor> {
        let all = (self.width * group.size() as i64) as f64;
        let mean = over_ranks(group, &values.f_square()?)?.f_div_scalar(all)?;
        Ok(mean.f_add_scalar(epsilon)?.f_rsqrt()?)
    }
}

/// Norms queries and keys of packed heads, each over the heads of all tensor-parallel ranks; `weights` are the numbers
/// of theirs.
fn full_norm(
    tape: &mut Tape<'_>,
    packed: &Flow,
    weights: &[usize],
    heads: Heads,
    epsilon: f64,
) -> anyhow::Result<Flow> {
    let group = tape.group();
    let (kind, exact) = (packed.data().kind(), exact(packed.data().kind()));
    let widths = [heads.queries * heads.key_dim, heads.keys * heads.key_dim];
    let mut parts = Vec::new();
    for ((start, width), &weight) in [(0, widths[0]), (widths[0], widths[1])].into_iter().zip(weights) {
        parts.push(Part { start, width, weight: tape.weight(weight).f_detach()?.f_reshape([-1])? });
    }
    let shapes: Vec<Vec<i64>> = weights.iter().map(|&weight| tape.weight(weight).size()).collect();
    let mut data = packed.data().f_empty_like()?;
    data.f_copy_(packed.data())?;
    let mut rests = Vec::new();
    for part in &parts {
        let values = part.of(packed.data())?.f_to_kind(exact)?;
        let rest = part.rest(group, &values, epsilon)?;
        part.of(&data)?.f_copy_(&values.f_mul(&rest)?.f_mul(&part.weight)?)?;
        rests.push(rest);
    }
    let kept = tape.keep(packed);
    let backward = move |gradient: Tensor| {
        let packed = kept.get()?;
        let mut of_packed = gradient.f_empty_like()?;
        of_packed.f_copy_(&gradient)?;
        let mut of_weights = Vec::new();
        for ((part, rest), shape) in parts.iter().zip(&rests).zip(&shapes) {
            let normed = part.of(&packed)?.f_to_kind(exact)?.f_mul(rest)?;
            let gradient = part.of(&gradient)?.f_to_kind(exact)?;
            let of_weight =
                gradient.f_mul(&normed)?.f_sum_dim_intlist([0_i64, 1].as_slice(), false, exact)?;
            of_weights.push(of_weight.f_view(shape.as_slice())?);
            let scaled = gradient.f_mul(&part.weight)?;
            let all = (part.width * group.size() as i64) as f64;
            let along = over_ranks(group, &scaled.f_mul(&normed)?)?.f_div_scalar(all)?;
            let of_part = scaled.f_sub(&normed.f_mul(&along)?)?.f_mul(rest)?.f_to_kind(kind)?;
            part.of(&of_packed)?.f_copy_(&of_part)?;
        }
        Ok(Gradients { inputs: vec![of_packed], weights: OfWeights::Made(of_weights) })
    };
    Ok(tape.function(&[packed], weights, data, Box::new(backward)))
}
