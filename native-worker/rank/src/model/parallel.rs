//! What values do between tensor-parallel ranks beside the sums of row-parallel matrices.

use tch::Tensor;

use crate::tape::{Flow, Gradients, OfWeights, Tape, TensorParallel};

fn made(inputs: Vec<Tensor>) -> Gradients<'static> {
    Gradients { inputs, weights: OfWeights::Made(Vec::new()) }
}

/// A value that every rank computed for its own tokens (or, without sequence parallelism, alike for all), for use by
/// the heads of each: forward joins the slices, backward sums what the ranks' heads say.
///
/// # Errors
/// When a collective fails.
pub fn to_all_heads(tape: &mut Tape<'_>, input: Flow, sequence_parallel: bool) -> anyhow::Result<Flow> {
    let group = tape.group();
    if group.size() == 1 {
        return Ok(input);
    }
    if sequence_parallel {
        let data = group.gather(input.data())?;
        let backward = move |gradient: Tensor| Ok(made(vec![group.sum_scatter(&gradient)?]));
        return Ok(tape.function(&[&input], &[], data, Box::new(backward)));
    }
    let data = input.data().shallow_clone();
    let backward = move |gradient: Tensor| Ok(made(vec![group.sum(&gradient)?]));
    Ok(tape.function(&[&input], &[], data, Box::new(backward)))
}

/// From `[s, b, width]` of every rank to `[s, b, ranks x width]`.
fn join_columns(group: TensorParallel<'_>, slice: &Tensor) -> anyhow::Result<Tensor> {
    let (size, ranks) = (slice.size(), group.size() as i64);
    let all = group.gather(slice)?.f_view([ranks, size[0], size[1], size[2]])?;
    Ok(all.f_permute([1, 2, 0, 3])?.f_reshape([size[0], size[1], ranks * size[2]])?)
}

/// A column-parallel matrix's outputs, of all ranks on each: backward sums what the ranks did with them.
///
/// # Errors
/// When a collective fails.
pub fn gather_columns(tape: &mut Tape<'_>, input: Flow) -> anyhow::Result<Flow> {
    let group = tape.group();
    let data = join_columns(group, input.data())?;
    let backward = move |gradient: Tensor| {
        let (size, ranks) = (gradient.size(), group.size() as i64);
        let width = size[2] / ranks;
        let by_rank = gradient.f_view([size[0], size[1], ranks, width])?.f_permute([2, 0, 1, 3])?;
        let by_rank = by_rank.f_reshape([ranks * size[0], size[1], width])?;
        Ok(made(vec![group.sum_scatter(&by_rank)?]))
    };
    Ok(tape.function(&[&input], &[], data, Box::new(backward)))
}

/// A column-parallel matrix's outputs as the residual stream: all columns, of this rank's slice of the sequence under
/// sequence parallelism.
///
/// # Errors
/// When a collective fails.
pub fn columns_to_stream(tape: &mut Tape<'_>, input: Flow, sequence_parallel: bool) -> anyhow::Result<Flow> {
    let group = tape.group();
    if group.size() == 1 {
        return Ok(input);
    }
    let (index, width) = (group.world.index(group.group)? as i64, input.data().size()[2]);
    let joined = join_columns(group, input.data())?;
    let tokens = joined.size()[0] / group.size() as i64;
    let data =
        if sequence_parallel { joined.f_narrow(0, index * tokens, tokens)?.f_contiguous()? } else { joined };
    let backward = move |gradient: Tensor| {
        let whole = if sequence_parallel { group.gather(&gradient)? } else { gradient };
        Ok(made(vec![whole.f_narrow(-1, index * width, width)?.f_contiguous()?]))
    };
    Ok(tape.function(&[&input], &[], data, Box::new(backward)))
}
